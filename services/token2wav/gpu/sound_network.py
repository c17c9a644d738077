"""The filter network of the vocoder as windowed convolutions: the arithmetic of `vocoder.hift` on static shapes."""

import math
from typing import Any

import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.token2wav.gpu.kernels.sound import LEAKY, NONE, SNAKE, windowed_convolution
from services.token2wav.gpu.launch import Launcher, ceil, power
from services.token2wav.vocoder.config import EDGE_KERNEL, VocoderConfig
from services.token2wav.vocoder.hift import LAST_SLOPE
from services.token2wav.vocoder.receptive import LevelPlan, Plan, Span, residual_reach


class _Convolution:
    """One or several variants side by side. weights: per variant [N, C, taps]."""

    def __init__(
        self, weights: list[Tensor], biases: list[Tensor], dilations: list[int], shifts: list[int], alphas: list[Tensor] | None
    ) -> None:
        flat = [weight.transpose(1, 2).float().contiguous().flatten() for weight in weights]
        offsets = [sum(part.numel() for part in flat[:at]) for at in range(len(flat))]
        taps = [weight.shape[2] for weight in weights]
        device = weights[0].device
        self.out, self.channels = weights[0].shape[:2]
        self.weight, self.bias = torch.cat(flat), torch.stack(biases).float().contiguous()
        rows = list(zip(taps, dilations, offsets, shifts, strict=True))
        self.shapes = torch.tensor(rows, dtype=torch.int32).to(device)
        self.alpha = torch.stack(alphas).float().contiguous() if alphas is not None else self.bias
        self.variants = len(weights)


class _Blocks:
    """Residual blocks that run side by side."""

    def __init__(self, weights: dict[str, Tensor], names: list[str], kernels: list[int], dilations: list[tuple[int, ...]]) -> None:
        self.steps: list[tuple[_Convolution, _Convolution]] = []
        for at in range(len(dilations[0])):
            pair = []
            for part in (1, 2):
                widths = [each[at] if part == 1 else 1 for each in dilations]
                shifts = [-(kernel // 2) * width for kernel, width in zip(kernels, widths, strict=True)]
                pair.append(
                    _Convolution(
                        [weights[f"{name}.convs{part}.{at}.weight"] for name in names],
                        [weights[f"{name}.convs{part}.{at}.bias"] for name in names],
                        widths,
                        shifts,
                        [weights[f"{name}.activations{part}.{at}.alpha"] for name in names],
                    )
                )
            self.steps.append((pair[0], pair[1]))


class _Buffers:
    """Of one level: raw and activated columns, [variants, batch, columns, channels]."""

    def __init__(self, variants: int, most: int, columns: int, channels: int, device: torch.device) -> None:
        self.columns = columns
        self.between, self.raw, self.other, self.active = (
            torch.zeros(variants * most * columns * channels, device=device) for _ in range(4)
        )


class SoundNetwork:
    """Weights and the buffers for at most `most` windows. walk: the plan of a window that starts at frame `far`."""

    def __init__(
        self, config: VocoderConfig, weights: dict[str, Tensor], walk: Plan, far: int, most: int, mel_frames: int, mel_before: int,
        device: torch.device, launch: Launcher, precision: str,
    ) -> None:  # fmt: skip
        weights = {name: tensor.to(device) for name, tensor in weights.items()}
        self._config, self._launch, self._device = config, launch, device
        # Weights decide the operands' type; what is float32 is multiplied as `precision` says.
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._precision = "ieee" if precision == "bfloat16" else precision
        self._mel_frames, self._mel_before, self._walk, self._far = mel_frames, mel_before, walk, far
        self._pre = _single(weights, "conv_pre", -(EDGE_KERNEL // 2))
        self._post = _single(weights, "conv_post", -(EDGE_KERNEL // 2))
        self._none = torch.zeros(1, device=device)
        self._levels = [_LevelKernels(self, weights, level, walk.levels[level], most) for level in range(config.levels)]
        first = walk.levels[0].inputs
        self._begun = torch.zeros(most * (first.stop - first.start) * config.base_channels, device=device)
        self._planes = torch.zeros(most * (walk.post.stop - walk.post.start) * 2 * config.bins, device=device)

    def __call__(self, mel: Tensor, spectrum: Tensor, first: Tensor, end: Tensor, batch: int) -> Tensor:
        """mel [batch, frames, 80] around the window, spectrum [most, columns, 18] -> planes [batch, columns, 18] of the plan's `post`."""
        config, far, walk = self._config, self._far, self._walk
        inputs = walk.levels[0].inputs
        held = Span(inputs.start - far, inputs.stop - far)
        self.convolve(
            self._pre, mel, self._begun, first, end, batch, c=MEL_BINS, columns_in=self._mel_frames, columns_out=held.stop - held.start,
            start_in=-self._mel_before, shift=held.start + self._mel_before, rate=1,
        )  # fmt: skip
        x, columns, start, mean = self._begun, held.stop - held.start, held.start, 1
        for level in self._levels:
            x, columns, start, mean = level(x, columns, start, mean, spectrum, first, end, batch)
        rate = math.prod(config.upsample_rates)
        post = Span(walk.post.start - far * rate, walk.post.stop - far * rate)
        self.convolve(
            self._post, x, self._planes, first, end, batch, c=config.channels(config.levels), columns_in=columns,
            columns_out=post.stop - post.start, start_in=start, shift=post.start - start, rate=rate, extra=1, mean=mean, activation=LEAKY,
            slope=LAST_SLOPE,
        )  # fmt: skip
        return self._planes

    def convolve(
        self, layer: _Convolution, x: Tensor, out: Tensor | None, first: Tensor, end: Tensor, batch: int, *, c: int, columns_in: int,
        columns_out: int, start_in: int = 0, shift: int = 0, rate: int = 1, extra: int = 0, mean: int = 1, activation: int = NONE,
        slope: float = 0.0, masked: bool = True, step: int = 0, x_offset: int = 0, x_batch: int = 0, x_variants: int = 1,
        residual: Tensor | None = None, residual_shift: int = 0, residual_variants: int = 1, beside: Tensor | None = None,
        beside_columns: int = 0, beside_shift: int = 0, mirror: bool = False, start_out: int = 0, active: Tensor | None = None,
        alpha_out: Tensor | None = None,
    ) -> None:  # fmt: skip
        """One launch; see `windowed_convolution`."""
        none, n = self._none, layer.out
        if layer.weight.dtype != self._dtype:
            layer.weight = layer.weight.to(self._dtype)
        step = step or c
        tile = self._launch.tile("sound", n)
        bm, bn, bk = tile.rows, min(tile.columns, power(n)), min(tile.inner, power(c))
        self._launch(
            windowed_convolution, (ceil(columns_out, bm), ceil(n, bn), batch * layer.variants), x, layer.weight, layer.bias, layer.shapes,
            layer.alpha, none if residual is None else residual, none if beside is None else beside, none if out is None else out,
            none if alpha_out is None else alpha_out, none if active is None else active, first, end, batch, x_offset,
            x_batch, columns_in, columns_out, start_in, shift, beside_columns, residual_shift, beside_shift, start_out,
            slope, C=c, N=n, STEP=step, PLACED=x_batch > 0, VARIANTS=layer.variants, X_VARIANTS=x_variants,
            MEAN=mean, ACTIVATION=activation, MASKED=masked,
            RATE=rate, EXTRA=extra, RESIDUAL=residual is not None, RESIDUAL_VARIANTS=residual_variants, BESIDE=beside is not None,
            MIRROR=mirror, RAW=out is not None, ACTIVE=active is not None, PRECISION=self._precision, BM=bm, BN=bn, BK=bk,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip


class _LevelKernels:
    """One upsampling, its excitation and residual blocks."""

    def __init__(self, owner: SoundNetwork, weights: dict[str, Tensor], level: int, plan: LevelPlan, most: int) -> None:
        config, self._owner = owner._config, owner
        self._level, self._last = level, level == config.levels - 1
        self._rate_in, self._rate = math.prod(config.upsample_rates[:level]), config.upsample_rates[level]
        self._c_in, self._c = config.channels(level), config.channels(level + 1)
        far = owner._far * self._rate_in * self._rate
        self._merged, self._excited = (Span(s.start - far, s.stop - far) for s in (plan.merged, plan.excitation))
        trim = (config.upsample_kernel_sizes[level] - self._rate) // 2
        # Groups of `rate` columns that cover the raised span; group q starts at column q * rate - trim.
        first, last = (plan.raised.start - far + trim) // self._rate, (plan.raised.stop - far - 1 + trim) // self._rate
        self._groups, self._raised_start = Span(first, last + 1), first * self._rate - trim
        self._up = _raising(weights[f"ups.{level}.weight"], weights[f"ups.{level}.bias"], self._rate)
        stride, kernel = config.source_stride(level), config.source_kernel(level)
        down, bias = weights[f"source_downs.{level}.weight"], weights[f"source_downs.{level}.bias"]
        self._stride, self._wide = stride, kernel * 2 * config.bins
        # [C, 18, kernel] -> one tap of kernel * 18 channels, column by column.
        self._down = _Convolution([down.transpose(1, 2).flatten(1)[:, :, None]], [bias], [1], [0], None)
        self._source = _Blocks(
            weights, [f"source_resblocks.{level}"], [config.source_resblock_kernel_sizes[level]],
            [config.source_resblock_dilation_sizes[level]]
        )  # fmt: skip
        count = len(config.resblock_kernel_sizes)
        names = [f"resblocks.{count * level + at}" for at in range(count)]
        self._blocks = _Blocks(weights, names, list(config.resblock_kernel_sizes), list(config.resblock_dilation_sizes))
        self._source_reach = residual_reach(config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level])
        self._variants, device = count, owner._device
        self._spectrum_start = owner._walk.spectrum.start - owner._far * math.prod(config.upsample_rates)
        columns = self._merged.stop - self._merged.start
        self._raised = torch.zeros(most * (last + 1 - first) * self._rate * self._c, device=device)
        self._start = torch.zeros(most * columns * self._c, device=device)
        self._wave = _Buffers(1, most, self._excited.stop - self._excited.start, self._c, device)
        self._sound = _Buffers(count, most, columns, self._c, device)

    def __call__(
        self, x: Tensor, columns: int, start: int, mean: int, spectrum: Tensor, first: Tensor, end: Tensor, batch: int
    ) -> tuple[Tensor, int, int, int]:  # fmt: skip
        """x [mean, batch, columns, C] from column `start` on -> the same of this level: variants whose mean is the level's output."""
        owner, groups, rate = self._owner, self._groups, self._rate_in * self._rate
        extra = int(self._last)
        count = groups.stop - groups.start
        taps = int(self._up.shapes_taps)
        owner.convolve(
            self._up, x, self._raised, first, end, batch, c=self._c_in, columns_in=columns, columns_out=count, start_in=start,
            shift=groups.start - (taps - 1) - start, rate=self._rate_in, mean=mean, activation=LEAKY, slope=owner._config.lrelu_slope,
        )  # fmt: skip
        wave, sound, merged = self._wave, self._sound, self._merged
        begin = (self._excited.start * self._stride - self._stride // 2 - self._spectrum_start) * 2 * owner._config.bins
        owner.convolve(
            self._down, spectrum, wave.raw, first, end, batch, c=self._wide, columns_in=wave.columns, columns_out=wave.columns,
            masked=False,
            step=self._stride * 2 * owner._config.bins, x_offset=begin, x_batch=spectrum.shape[1] * spectrum.shape[2],
        )  # fmt: skip
        common: dict[str, Any] = {"c": self._c, "rate": rate, "extra": extra}
        x_raw, x_other, alone = wave.raw, wave.other, Span(self._excited.start, self._excited.stop)
        for at, (one, two) in enumerate(self._source.steps):
            owner.convolve(
                one, x_raw, None, first, end, batch, columns_in=wave.columns, columns_out=wave.columns, start_in=alone.start,
                activation=SNAKE, active=wave.between, alpha_out=two.alpha, **common,
            )  # fmt: skip
            final = at == len(self._source.steps) - 1
            within = merged.start - alone.start if final else 0
            owner.convolve(
                two, wave.between, self._start if final else x_other, first, end, batch, columns_in=wave.columns,
                columns_out=sound.columns if final else wave.columns, start_in=alone.start, shift=within, residual=x_raw,
                residual_shift=within, beside=self._raised if final else None, beside_columns=count * self._rate,
                beside_shift=merged.start - self._raised_start, mirror=final and self._last, start_out=merged.start, **common,
            )  # fmt: skip
            x_raw, x_other = x_other, x_raw
        x_in, variants, to, spare = self._start, 1, sound.raw, sound.other
        for one, two in self._blocks.steps:
            owner.convolve(
                one, x_in, None, first, end, batch, columns_in=sound.columns, columns_out=sound.columns, start_in=merged.start,
                activation=SNAKE, x_variants=variants, active=sound.between, alpha_out=two.alpha, **common,
            )  # fmt: skip
            owner.convolve(
                two, sound.between, to, first, end, batch, columns_in=sound.columns, columns_out=sound.columns, start_in=merged.start,
                x_variants=self._variants, residual=x_in, residual_variants=variants, **common,
            )  # fmt: skip
            x_in, variants, to, spare = to, self._variants, spare, to
        return x_in, sound.columns, merged.start, self._variants


class _Raising(_Convolution):
    """shapes_taps: taps of the grouped form."""

    shapes_taps = 0


def _raising(weight: Tensor, bias: Tensor, rate: int) -> _Raising:
    """A transposed convolution [in, out, K] as one that makes `rate` columns at once from ceil(K / rate) taps, oldest first."""
    c_in, c_out, kernel = weight.shape
    taps = ceil(kernel, rate)
    padded = torch.zeros(c_in, c_out, taps * rate, device=weight.device)
    padded[:, :, :kernel] = weight
    # Column q * rate + r sees input q - t through kernel place r + t * rate; tap 0 here is the oldest input, t = taps - 1.
    grouped = padded.view(c_in, c_out, taps, rate).flip(2).permute(3, 1, 0, 2).reshape(rate * c_out, c_in, taps)
    made = _Raising([grouped], [bias.repeat(rate)], [1], [0], None)
    made.shapes_taps = taps
    return made


def _single(weights: dict[str, Tensor], name: str, shift: int) -> _Convolution:
    return _Convolution([weights[f"{name}.weight"]], [weights[f"{name}.bias"]], [1], [shift], None)
