"""The HiFT filter network with its short-time Fourier transforms: mel and source in, samples out.

Source: compatibility specification section 5.3; Li et al., "HiFTNet", 2023. Weight norm is fused,
so every layer is a plain convolution.

Activations are [B, C, T]. On a CPU the channels of a column are contiguous in memory: with this
order oneDNN's convolutions take 0.6 to 0.9 of the time that they take with contiguous columns per
channel, and do not pad 24 channels to 32.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.receptive_field import LevelPlan, Plan, Span, plan, residual_reach
from services.token2wav.vocoder.weights import EDGE_KERNEL, VocoderConfig


class Spectrum:
    """Short-time Fourier transform and its inverse on any range of a sentence, with a periodic Hann
    window. Frame k is centred on sample k * hop. Beyond the ends of the sentence its mirror image
    is analysed.
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
        return self.of(piece)

    def of(self, samples: Tensor) -> Tensor:
        """[B, n] -> [B, n_fft + 2, frames] of the frames that lie inside, as `analyse`."""
        spectrum = torch.fft.rfft(samples.unfold(-1, self._n_fft, self._hop) * self._window)
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


LAST_SLOPE = 0.01
LARGEST_MAGNITUDE = 100.0
Weights = dict[str, Tensor]
Activation = Callable[[Tensor], Callable[[Tensor], Tensor]]
"""Builds the activation of a layer from its alphas [C, 1]."""


def cut(x: Tensor, held: Span, wanted: Span) -> Tensor:
    """Columns `wanted` of a layer of which x [B, C, held] is given. A plan includes every column
    inside the sentence, so missing columns lie outside it, and there they are zeros.
    """
    inside = wanted.within(held.stop)
    start = max(inside.start, held.start)
    piece = x[..., start - held.start : inside.stop - held.start]
    before, after = start - wanted.start, wanted.stop - inside.stop
    # With an added dimension, because padding preserves the memory order only in four dimensions.
    return F.pad(piece[:, :, None], (before, after))[:, :, 0] if before or after else piece


def columnwise(x: Tensor) -> Tensor:
    """The same [B, C, T], column by column in memory where that order is faster."""
    return x.transpose(1, 2).contiguous().transpose(1, 2) if x.device.type == "cpu" else x


class Convolution:
    """Convolution over columns, without padding: weight [out, in, taps], bias [out]; [B, in, T] ->
    [B, out, columns].
    """

    def __init__(self, weights: Weights, name: str, *, stride: int = 1, dilation: int = 1) -> None:
        self._weight, self._bias = _ordered(weights[f"{name}.weight"]), weights[f"{name}.bias"]
        self._stride, self._dilation = (1, stride), (1, dilation)
        on_cpu = self._weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._direct = on_cpu and self._weight.dtype == torch.float32 and not self._weight.requires_grad

    def __call__(self, x: Tensor) -> Tensor:
        if self._direct:
            # On one thread torch chooses a native kernel for small convolutions, which is up to
            # twice as slow.
            y = torch.mkldnn_convolution(
                x[:, :, None], self._weight, self._bias, (0, 0), self._stride, self._dilation, 1
            )
        else:
            y = F.conv2d(x[:, :, None], self._weight, self._bias, self._stride, dilation=self._dilation)
        return y[:, :, 0]


class TransposedConvolution:
    """Transposed convolution over columns, without trimming: weight [in, out, taps], bias [out];
    [B, in, T] -> [B, out, (T - 1) * stride + taps].
    """

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        self._weight, self._bias, self._stride = (
            _ordered(weights[f"{name}.weight"]),
            weights[f"{name}.bias"],
            (1, stride),
        )

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(x[:, :, None], self._weight, self._bias, self._stride)[:, :, 0]


def _ordered(weight: Tensor) -> Tensor:
    """[a, b, taps] -> [a, b, 1, taps]: a convolution over an image of one row supports a memory
    order that a one-dimensional convolution lacks.
    """
    image = weight[:, :, None]
    return image.contiguous(memory_format=torch.channels_last) if weight.device.type == "cpu" else image


class Snake:
    """x + sin(alpha x)^2 / alpha, with one alpha per channel."""

    def __init__(self, alpha: Tensor) -> None:
        """alpha: [C, 1]."""
        self._alpha = alpha
        self._inverse = 1.0 / (alpha + 1e-9)

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, T] -> the same shape."""
        return torch.addcmul(x, (x * self._alpha).sin_().square_(), self._inverse)


class ResidualBlock:
    """For each dilation: x plus the plain convolution of snake of the dilated convolution of snake
    of x.
    """

    def __init__(self, weights: Weights, name: str, kernel: int, dilations: tuple[int, ...], snake: Activation) -> None:
        self._half = kernel // 2
        self.reach = residual_reach(kernel, dilations)

        def activation(name: str) -> Callable[[Tensor], Tensor]:
            return snake(weights[f"{name}.alpha"][:, None])

        self._layers = [
            (
                dilation,
                activation(f"{name}.activations1.{i}"),
                Convolution(weights, f"{name}.convs1.{i}", dilation=dilation),
                activation(f"{name}.activations2.{i}"),
                Convolution(weights, f"{name}.convs2.{i}"),
            )
            for i, dilation in enumerate(dilations)
        ]

    def __call__(self, x: Tensor, held: Span, wanted: Span, length: int, stop: Stop = never) -> Tensor:
        """x [B, C, held] -> [B, C, wanted] of a layer that is `length` columns long. Polls `stop`
        before each dilation.
        """
        ahead = self.reach
        for dilation, snake1, spread, snake2, plain in self._layers:
            raise_if_stopped(stop)
            ahead -= self._half * (dilation + 1)
            out = wanted.widened(ahead).within(length)
            between = out.widened(self._half).within(length)
            y = spread(cut(snake1(x), held, between.widened(self._half * dilation)))
            y = plain(cut(snake2(y), between, out.widened(self._half)))
            x, held = cut(x, held, out) + y, out
        return x


class Level:
    """One upsampling level and the excitation that is added to it."""

    def __init__(self, config: VocoderConfig, weights: Weights, level: int, snake: Activation) -> None:
        self._rate = config.upsample_rates[level]
        self._up = TransposedConvolution(weights, f"ups.{level}", self._rate)
        self._trim = (config.upsample_kernel_sizes[level] - self._rate) // 2
        self._stride, self._down_kernel = config.source_stride(level), config.source_kernel(level)
        self._down = Convolution(weights, f"source_downs.{level}", stride=self._stride)
        self._last = level == config.levels - 1
        self._slope = config.lrelu_slope
        self._source_block = ResidualBlock(
            weights,
            f"source_resblocks.{level}",
            config.source_resblock_kernel_sizes[level],
            config.source_resblock_dilation_sizes[level],
            snake,
        )
        variants = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
        self._blocks = [
            ResidualBlock(weights, f"resblocks.{len(variants) * level + i}", kernel, dilations, snake)
            for i, (kernel, dilations) in enumerate(variants)
        ]

    def __call__(self, x: Tensor, spectrum: Tensor, held: Span, plan: LevelPlan, stop: Stop) -> Tensor:
        """x [B, C, plan.inputs], spectrum [B, 18, held] -> [B, C / 2, plan.out]."""
        merged = self._upsample(x, plan) + self._excite(spectrum, held, plan, stop)
        total = self._blocks[0](merged, plan.merged, plan.out, plan.length, stop)
        for block in self._blocks[1:]:
            total = total + block(merged, plan.merged, plan.out, plan.length, stop)
        return total / len(self._blocks)

    def _upsample(self, x: Tensor, plan: LevelPlan) -> Tensor:
        y = self._up(F.leaky_relu(x, self._slope))
        start = plan.raised.start + self._trim - plan.inputs.start * self._rate
        y = y[..., start : start + plan.raised.stop - plan.raised.start]
        return (
            torch.cat([y[:, :, None, 1:2], y[:, :, None]], dim=-1)[:, :, 0]
            if self._last and plan.merged.start == 0
            else y
        )

    def _excite(self, spectrum: Tensor, held: Span, plan: LevelPlan, stop: Stop) -> Tensor:
        start = plan.excitation.start * self._stride - self._stride // 2
        columns = (plan.excitation.stop - plan.excitation.start - 1) * self._stride + self._down_kernel
        y = self._down(cut(spectrum, held, Span(start, start + columns)))
        return self._source_block(y, plan.excitation, plan.merged, plan.length, stop)


class FilterNetwork:
    """Weights only; renders any range of frames of a sentence."""

    def __init__(
        self, config: VocoderConfig, weights: Weights, device: torch.device, snake: Activation = Snake
    ) -> None:
        """snake: another implementation of the same activation, which training uses."""
        weights = {name: tensor.to(device) for name, tensor in weights.items() if not name.startswith("f0_predictor.")}
        self._config = config
        self.spectrum = Spectrum(config.n_fft, config.hop_len, device)
        self._pre, self._post = Convolution(weights, "conv_pre"), Convolution(weights, "conv_post")
        self._levels = [Level(config, weights, level, snake) for level in range(config.levels)]
        self._limit, self._bins = config.audio_limit, config.bins

    def __call__(self, mel: Tensor, source: Tensor, first: int, last: int, stop: Stop = never) -> Tensor:
        """Samples of frames first..last-1: [B, 480 * (last - first)] within the audio limit.

        mel [B, 80, T] and source [B, n], both from frame 0 on. The ends of mel count as the ends of
        the sentence; frames outside the receptive field have no effect. n may be less than 480 * T
        where the plan does not reach. Raises Cancelled if `stop` returns True between two
        convolutions.
        """
        walk = self.plan(first, last, mel.shape[2])
        # TensorFloat-32 rounds differently from one batch shape to the next: 2e-4 in the samples,
        # against 2e-7 in full float32.
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            x = self.conv_post(mel, source, walk, stop)
        return self.unlimited(x, walk, first, last).clamp_(-self._limit, self._limit)

    def plan(self, first: int, last: int, frames: int) -> Plan:
        """What each layer computes for the samples of frames first..last-1 out of `frames`."""
        return plan(self._config, first, last, frames)

    def conv_pre(self, mel: Tensor, plan: Plan) -> Tensor:
        """[B, 80, T] -> [B, base channels, span of the first level's inputs]."""
        inputs = plan.levels[0].inputs
        return self._pre(cut(columnwise(mel), Span(0, plan.frames), inputs.widened(EDGE_KERNEL // 2)))

    def conv_post(self, mel: Tensor, source: Tensor, plan: Plan, stop: Stop = never) -> Tensor:
        """The network up to the log-magnitude and phase planes: [B, 18, plan.post]."""
        spectrum = self.spectrum.analyse(source, plan.spectrum, SAMPLES_PER_MEL_FRAME * plan.frames)
        x = self.conv_pre(mel, plan)
        for level, level_plan in zip(self._levels, plan.levels, strict=True):
            x = level(x, spectrum, plan.spectrum, level_plan, stop)
        x = F.leaky_relu(x, LAST_SLOPE)
        return self._post(cut(x, plan.levels[-1].out, plan.post.widened(EDGE_KERNEL // 2)))

    def unlimited(self, planes: Tensor, plan: Plan, first: int, last: int) -> Tensor:
        """Planes of `conv_post` [B, 18, plan.post] -> samples [B, 480 * (last - first)], which may
        exceed the audio limit.
        """
        magnitude = torch.exp(planes[:, : self._bins]).clamp(max=LARGEST_MAGNITUDE)
        angle = torch.sin(planes[:, self._bins :])
        samples = Span(first * SAMPLES_PER_MEL_FRAME, last * SAMPLES_PER_MEL_FRAME)
        return self.spectrum.synthesise(magnitude, angle, plan.post, samples)
