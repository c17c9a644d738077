"""From sounds, pitch and energy to samples: a decoder at 80 frames a second and a vocoder that ends
in an inverse STFT (iSTFTNet).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.demo_voice.teacher.layers import STYLE, SnakeBlock, Span, StyledBlock

SAMPLE_RATE = 24_000
FRAME = 600
"""Samples of one frame of 25 ms, the unit of durations."""
_HARMONICS = 9
_VOICED = 10.0
_AMPLITUDE = 0.1
_FFT, _HOP = 20, 5
_BINS = _FFT // 2 + 1
_PITCH_FRAME = FRAME // 2


class _Source(nn.Module):
    """The excitation: nine harmonics of the pitch where voiced, noise all along, added up by a
    learnt weighting (Wang et al. 2019).
    """

    def __init__(self) -> None:
        super().__init__()
        self.l_linear = nn.Linear(_HARMONICS, 1)

    def forward(self, pitch: Tensor, noise: torch.Generator | None) -> Tensor:
        """pitch in Hz [B, 1, 2 T] to samples [B, 600 T]; without a generator there is no noise."""
        # In double precision: the phase of a long sentence counts ten thousands of cycles.
        order = torch.arange(1, _HARMONICS + 1, device=pitch.device, dtype=torch.float64).view(1, -1, 1)
        cycles = (pitch.double() * order / SAMPLE_RATE).frac().cumsum(dim=2) * _PITCH_FRAME
        phase = F.interpolate(cycles, scale_factor=float(_PITCH_FRAME), mode="linear").frac_() * (2 * math.pi)
        voiced = (pitch > _VOICED).float().repeat_interleave(_PITCH_FRAME, dim=2)
        waves = phase.float().sin_().mul_(_AMPLITUDE * voiced)
        if noise is not None:
            strength = torch.lerp(torch.full_like(voiced, _AMPLITUDE / 3), torch.full_like(voiced, 0.003), voiced)
            waves.addcmul_(torch.randn(waves.shape, device=waves.device, generator=noise), strength)
        mixed: Tensor = self.l_linear(waves.transpose(1, 2)).squeeze(2)
        return mixed.tanh_()


class Generator(nn.Module):
    """The vocoder: upsampling by 10 and 6 with the source joined at each rate, then magnitude and
    phase of an STFT of 20 samples, hop 5.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        half, quarter = channels // 2, channels // 4
        self.m_source = _Source()
        self.ups = nn.ModuleList(
            [
                nn.ConvTranspose1d(channels, half, 20, stride=10, padding=5),
                nn.ConvTranspose1d(half, quarter, 12, stride=6, padding=3),
            ]
        )
        self.noise_convs = nn.ModuleList(
            [nn.Conv1d(2 * _BINS, half, 12, stride=6, padding=3), nn.Conv1d(2 * _BINS, quarter, 1)]
        )
        self.noise_res = nn.ModuleList([SnakeBlock(half, 7), SnakeBlock(quarter, 11)])
        self.resblocks = nn.ModuleList(SnakeBlock(width, kernel) for width in (half, quarter) for kernel in (3, 7, 11))
        self.conv_post = nn.Conv1d(quarter, 2 * _BINS, 7, padding=3)
        self.register_buffer("window", torch.hann_window(_FFT), persistent=False)
        self.window: Tensor

    def forward(
        self, x: Tensor, style: Tensor, pitch: Tensor, frames: Sequence[int], noise: torch.Generator | None
    ) -> Tensor:
        """x [B, channels, 2 T], pitch [B, 1, 2 T] to samples [B, 600 T]."""
        longest = x.shape[2] // 2
        spans = [
            Span.of([20 * each for each in frames], x.device, 20 * longest),
            Span.of([120 * each + 1 for each in frames], x.device, 120 * longest + 1),
        ]
        source = spans[1].clear(self._spectrum(self.m_source(pitch, noise), frames))
        for step, span in enumerate(spans):
            joined = span.clear(self.noise_convs[step](source))
            joined = self.noise_res[step](joined, style, span)
            x = self.ups[step](F.leaky_relu(x, 0.1))
            if step == 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = span.clear(x.add_(joined))
            blocks = self.resblocks[3 * step : 3 * step + 3]
            x = sum((block(x, style, span) for block in blocks[1:]), start=blocks[0](x, style, span)) / len(blocks)
        magnitude, angle = self.conv_post(F.leaky_relu(x, 0.01)).chunk(2, dim=1)
        spectrum = torch.polar(spans[1].clear(magnitude.exp()), angle.sin())
        return torch.istft(spectrum, _FFT, _HOP, window=self.window)

    def _spectrum(self, samples: Tensor, frames: Sequence[int]) -> Tensor:
        """Magnitude and phase [B, 22, 120 T + 1] of samples [B, 600 T]; every row is reflected at
        its own end.
        """
        ends = torch.tensor([[FRAME * each - 1] for each in frames], device=samples.device)
        places = torch.arange(-_FFT // 2, samples.shape[1] + _FFT // 2, device=samples.device).abs()
        places = torch.minimum(places, (2 * ends - places)).clamp_(min=0)
        spectrum = torch.stft(
            samples.gather(1, places), _FFT, _HOP, window=self.window, center=False, return_complex=True
        )
        return torch.cat([spectrum.abs(), _angle(spectrum)], dim=1)


def _angle(spectrum: Tensor) -> Tensor:
    """Phase in (-pi, pi]; that of a negative real number is pi, whatever the sign of its zero
    imaginary part.
    """
    return torch.where((spectrum.imag == 0) & (spectrum.real < 0), math.pi, spectrum.angle())


class Decoder(nn.Module):
    """Residual blocks over sounds, pitch and energy; the last doubles the rate. Then the
    vocoder.
    """

    def __init__(self, sounds: int) -> None:
        super().__init__()
        width, residual = 2 * sounds, sounds // 8
        self.F0_conv, self.N_conv = nn.Conv1d(1, 1, 3, stride=2, padding=1), nn.Conv1d(1, 1, 3, stride=2, padding=1)
        self.asr_res = nn.Sequential(nn.Conv1d(sounds, residual, 1))
        self.encode = StyledBlock(sounds + 2, width)
        inner = width + residual + 2
        self.decode = nn.ModuleList(
            [*(StyledBlock(inner, width) for _ in range(3)), StyledBlock(inner, sounds, upsample=True)],
        )
        self.generator = Generator(sounds)

    def forward(
        self,
        sounds: Tensor,
        pitch: Tensor,
        energy: Tensor,
        style: Tensor,
        frames: Sequence[int],
        noise: torch.Generator | None = None,
    ) -> Tensor:
        """sounds [B, sounds, T], pitch and energy [B, 1, 2 T], style [B, 128] to samples [B, 600
        T].
        """
        longest = sounds.shape[2]
        span = Span.of(frames, sounds.device, longest)
        double = Span.of([2 * each for each in frames], sounds.device, 2 * longest)
        curves = [span.clear(self.F0_conv(pitch)), span.clear(self.N_conv(energy))]
        x = self.encode(torch.cat([sounds, *curves], dim=1), style, span, span)
        residual = span.clear(self.asr_res(sounds))
        for block in self.decode:
            x = block(torch.cat([x, residual, *curves], dim=1), style, span, double if block.pool is not None else span)
        samples: Tensor = self.generator(x, style, pitch, frames, noise)
        return samples


STYLE_OF_SOUND = slice(0, STYLE)
STYLE_OF_PROSODY = slice(STYLE, 2 * STYLE)
