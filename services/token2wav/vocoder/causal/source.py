"""Pitch and excitation of causal HiFT: nine waves that follow f0, plus noise, merged into one
signal.

A wave has one value for a whole frame, the sine of its phase there: steps that stand still for 20
ms, with which the network was trained. Only noise differs inside a frame. Source: compatibility
specification of CosyVoice3, section 5.3.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.model_files import YamlSection
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.weights import PITCH, CausalVocoderConfig
from services.token2wav.vocoder.hift import Weights
from services.token2wav.vocoder.weights import F0_LAYERS

SECONDS = 300
"""The reference has noise for so long."""
FLOW_NOISE_FRAMES = 15_000


class CausalPitch:
    """Fundamental frequency from mel that arrives piece by piece (compatibility specification of
    CosyVoice3, section 5.2).

    Five convolutions, of which the first looks three frames ahead and the others back, and a
    linear layer; in float64, because frequency is accumulated into phase.
    """

    def __init__(self, config: CausalVocoderConfig, weights: Weights, device: torch.device) -> None:
        def read(name: str) -> Tensor:
            return weights[f"{PITCH}{name}"].to(device, torch.float64)

        self._layers = [(read(f"condnet.{2 * i}.weight"), read(f"condnet.{2 * i}.bias")) for i in range(F0_LAYERS)]
        self._before = [config.f0_kernel(i) - 1 for i in range(F0_LAYERS)]
        self._weight, self._bias = read("classifier.weight"), read("classifier.bias")

    def __call__(self, mel: Tensor, history: History) -> Tensor:
        """[B, 80, n + 3], the frames and the three after them -> [B, n] float32 in Hz."""
        return self.exact(mel, history).to(torch.float32)

    def exact(self, mel: Tensor, history: History) -> Tensor:
        """The same before rounding, float64."""
        x = mel.to(torch.float64)
        for at in range(F0_LAYERS):
            x = self.layer(x, at, history)
        return F.linear(x.transpose(1, 2), self._weight, self._bias).squeeze(-1).abs()

    def layer(self, x: Tensor, at: int, history: History) -> Tensor:
        """Convolution `at` and its activation, [B, C, T] -> [B, C', T]; the first one gets three
        frames more than it makes.
        """
        weight, bias = self._layers[at]
        if at:
            x = history.extended(f"{PITCH}{at}", x, self._before[at])
        return F.elu(F.conv1d(x, weight, bias))


class CausalSource:
    """Stateless: noise is an argument, the sum of all steps of phase is passed in and returned."""

    def __init__(self, config: CausalVocoderConfig, weights: Weights, device: torch.device) -> None:
        self._config = config
        self._weight = weights["m_source.l_linear.weight"].to(device)
        self._bias = weights["m_source.l_linear.bias"].to(device)
        self._multiples = torch.arange(1, config.harmonics + 1, dtype=torch.float32, device=device)
        # A tensor, because on CUDA torch multiplies by the reciprocal of a Python number.
        self._rate = torch.full((), SAMPLE_RATE, dtype=torch.float32, device=device)

    def generate(self, f0: Tensor, total: Tensor | None, noise: Tensor) -> tuple[Tensor, Tensor]:
        """f0: [B, n] Hz. total: float64 [B, harmonics], what `waves` returned for the frames
        before, None at the start of a sentence. noise: uniform in [0, 1), [B, 480 n, harmonics].
        Returns the excitation [B, 480 n] and the new total.
        """
        waves, voiced, total = self.waves(f0, total)
        level = voiced * self._config.nsf_sigma + (1 - voiced) * (self._config.nsf_alpha / 3)
        waves, level = (each.repeat_interleave(SAMPLES_PER_MEL_FRAME, dim=1) for each in (waves, level))
        return torch.tanh(F.linear(waves + level * noise, self._weight, self._bias)).squeeze(-1), total

    def waves(self, f0: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Waves of each frame [B, n, harmonics], zero where unvoiced; the voiced flag [B, n, 1] as
        0 or 1; the total after the last frame.

        The sum runs in float64 and each of its values is rounded to float32, as torch does on a CPU
        for the reference. In float64 it is nearly always exact, so the order of additions, which is
        another one on a GPU, does not matter.
        """
        turns = torch.remainder(f0[..., None] * self._multiples / self._rate, 1.0).to(torch.float64)
        if total is not None:
            turns = torch.cat([total[:, None], turns], dim=1)
        totals = torch.cumsum(turns, dim=1)
        rounded = totals[:, totals.shape[1] - f0.shape[1] :].to(torch.float32)
        # In this order: three roundings to float32.
        phase = rounded * 2 * math.pi * SAMPLES_PER_MEL_FRAME
        voiced = (f0 > self._config.nsf_voiced_threshold).to(torch.float32)[..., None]
        return torch.sin(phase) * self._config.nsf_alpha * voiced, voiced, totals[:, -1]


class ReferenceNoise:
    """The noise of the reference: a buffer of uniform draws, the same in every process and
    sentence.

    The reference draws it when it builds the vocoder, from torch's CPU generator, which the flow
    has seeded with 0 just before. So it follows from the sizes of the layers that are initialised
    between the two. Source: compatibility specification of CosyVoice3, section 5.3.

    The generator's state before the buffer. Numbers are drawn each time they are asked for: a
    second of them takes about a millisecond, and 0.9 MB that need not be kept.
    """

    def __init__(self, directory: ModelDirectory, config: CausalVocoderConfig) -> None:
        """Raises ModelError for a key of the yaml section `flow` that is missing."""
        flow = YamlSection(directory, "flow")
        inputs, speaker, outputs, channels = (
            *(flow.size(key) for key in ("input_size", "spk_embed_dim", "output_size")),
            config.f0_channels,
        )
        drawn = torch.Generator().manual_seed(0)
        torch.randn(MEL_BINS * FLOW_NOISE_FRAMES, generator=drawn)
        torch.randn(flow.size("vocab_size") * inputs, generator=drawn)
        layers = [(outputs, speaker)]
        layers += [(channels, (channels if at else MEL_BINS) * config.f0_kernel(at)) for at in range(F0_LAYERS)]
        layers += [(1, channels)]
        for outs, ins in layers:
            torch.rand(outs * ins + outs, generator=drawn)
        self.initial_phases = torch.rand(1, config.harmonics, generator=drawn)
        """[1, harmonics], which no output depends on."""
        self.initial_phases[:, 0] = 0
        self._before, self._harmonics = drawn.get_state(), config.harmonics

    def first(self, samples: int) -> Tensor:
        """The buffer's first values, float32 [1, samples, harmonics] on the CPU. Raises
        InvalidRequest for more than it has.
        """
        if samples > SECONDS * SAMPLE_RATE:
            raise InvalidRequest(
                f"{samples / SAMPLE_RATE:.1f} seconds of sound: profile upstream has noise for {SECONDS} seconds"
            )
        drawn = torch.Generator()
        drawn.set_state(self._before)
        return torch.rand(1, samples, self._harmonics, generator=drawn)
