"""Short-time Fourier transform and its inverse on any range of a sentence: periodic Hann window,
centred frames.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from services.token2wav.vocoder.receptive_field import Span


class Spectrum:
    """Frame k is centred on sample k * hop. Beyond the ends of the sentence its mirror image is
    analysed.
    """

    def __init__(self, n_fft: int, hop: int, device: torch.device) -> None:
        self._n_fft, self._hop = n_fft, hop
        self._window = torch.hann_window(n_fft, periodic=True, device=device)

    def analyse(self, signal: Tensor, frames: Span, length: int) -> Tensor:
        """signal [B, n] of a sentence of `length` samples -> [B, n_fft + 2, frames], real parts
        followed by imaginary parts.
        """
        half = self._n_fft // 2
        wanted = Span(frames.start * self._hop - half, (frames.stop - 1) * self._hop + half)
        inside = wanted.within(length)
        piece = signal[:, inside.start : inside.stop]
        before, after = inside.start - wanted.start, wanted.stop - inside.stop
        if before or after:
            piece = F.pad(piece, (before, after), mode="reflect")
        spectrum = torch.fft.rfft(piece.unfold(-1, self._n_fft, self._hop) * self._window)
        return torch.cat([spectrum.real, spectrum.imag], dim=-1).transpose(1, 2)

    def synthesise(self, magnitude: Tensor, angle: Tensor, held: Span, samples: Span) -> Tensor:
        """magnitude and angle [B, n_fft / 2 + 1, held] -> [B, samples]: overlap-add, divided by the
        summed squared window.
        """
        frames = torch.fft.irfft(torch.polar(magnitude, angle).transpose(1, 2), n=self._n_fft) * self._window
        energy = self._window.square().expand(1, frames.shape[1], -1)
        start = samples.start + self._n_fft // 2 - held.start * self._hop
        part = slice(start, start + samples.stop - samples.start)
        return self._overlap_add(frames)[:, part] / self._overlap_add(energy)[:, part]

    def _overlap_add(self, frames: Tensor) -> Tensor:
        """[B, K, n_fft] -> [B, (K - 1) * hop + n_fft]."""
        quarters = self._n_fft // self._hop
        count = frames.shape[1]
        total = frames.new_zeros(frames.shape[0], count + quarters - 1, self._hop)
        for quarter in range(quarters):
            total[:, quarter : quarter + count] += frames[..., quarter * self._hop : (quarter + 1) * self._hop]
        return total.flatten(1)
