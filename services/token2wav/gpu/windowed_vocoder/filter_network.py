"""The vocoder's filter network as windowed convolutions: the arithmetic of `vocoder.hift`, or of
`vocoder.causal.network`, on static shapes.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from cosyserve.spec import MEL_BINS
from services.token2wav.gpu.device.launcher import EXACT_SOUND_TILES, SOUND_TILES, Launcher, ceil
from services.token2wav.gpu.kernels.windowed_convolution import LEAKY, NONE, SNAKE, windowed_convolution
from services.token2wav.gpu.windowed_vocoder.convolutions import (
    MARGIN,
    OPERANDS,
    Columns,
    Convolution,
    Input,
    Lead,
    Output,
    OutputColumns,
    Residual,
    ResidualBlocks,
    Weights,
    strided,
    wide,
)
from services.token2wav.gpu.windowed_vocoder.networks import Network
from services.token2wav.gpu.windowed_vocoder.shapes import WindowShape, count
from services.token2wav.vocoder.hift import LAST_SLOPE
from services.token2wav.vocoder.receptive_field import Span
from services.token2wav.vocoder.weights import VocoderConfig

MEL_WIDTH = -(-MEL_BINS // 64) * 64
"""Elements per mel frame, padded to whole tiles."""


class SoundNetwork:
    """Weights, and buffers for at most `most` windows of the longest of `shapes`. precision: see
    `WindowedVocoder`.
    """

    def __init__(
        self, network: Network, config: VocoderConfig, weights: Weights, shapes: Sequence[WindowShape], most: int,
        device: torch.device,
        launch: Launcher,
        precision: str, side_streams: bool = True,
    ) -> None:  # fmt: skip
        weights = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network, self.config, self.device, self.launch = network, config, device, launch
        self.dtype = OPERANDS[precision]
        self._tiles = EXACT_SOUND_TILES if precision == "ieee" else SOUND_TILES
        self._precision = precision if self.dtype == torch.float32 else "ieee"
        self._described = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
        """Whether tiles can be loaded by TMA descriptors, from Hopper on."""
        self._none = torch.zeros(1, device=device)
        longest = max(shapes, key=lambda shape: shape.frames)

        def edge(name: str, lead: Lead) -> Convolution:
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            weight = F.pad(weight, (0, 0, 0, MEL_WIDTH - MEL_BINS)) if name == "conv_pre" else weight
            return Convolution([weight], [bias], [1], [lead(weight.shape[2], 1)], self.dtype)

        self._pre, self._post = edge("conv_pre", network.first_lead), edge("conv_post", network.lead)
        self.spectrum_width, self.planes_width = max(32, wide(2 * config.bins)), self._post.out
        self.mel = Columns(1, most * longest.mel_frames, MEL_WIDTH, self.dtype, device)
        self._pre_x = Columns(1, most * count(longest.inputs), self._pre.out, self.dtype, device)
        self.spectrum = Columns(1, most * count(longest.spectrum), self.spectrum_width, self.dtype, device)
        self.planes = Columns(1, most * count(longest.post), self.planes_width, torch.float32, device)
        self._levels = [_Level(self, weights, level, longest, most) for level in range(config.levels)]
        if side_streams and device.type == "cuda":
            for level in self._levels[1:]:
                level.side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, shape: WindowShape, first: Tensor, end: Tensor, batch: int) -> Tensor:
        """Compute planes [batch, columns of shape.post, width] from `mel` [batch, shape.mel_frames,
        MEL_WIDTH] and `spectrum` [batch, columns, width], both zero outside the sentence. Only the
        first 2 * bins of each column are valid.
        """
        config, ends, inputs = self.config, (first, end), shape.inputs
        self._excite(shape, ends, batch)
        self.convolve(
            "pre", self._pre, Input(self.mel, shape.mel_frames, inputs.start + shape.frames_before),
            OutputColumns(ends, batch, count(inputs), inputs.start, 1),
            Output(active=self._pre_x, slope=config.lrelu_slope),
        )  # fmt: skip
        x, held = self._pre_x, inputs
        for level in self._levels:
            if level.side_stream is not None:
                torch.cuda.current_stream(self.device).wait_stream(level.side_stream)
            x, held = level(shape, x, held, ends, batch), shape.levels[level.level].merged
        post = shape.post
        to = OutputColumns(ends, batch, count(post), post.start, math.prod(config.upsample_rates))
        self.convolve("post", self._post, Input(x, count(held), post.start - held.start), to, Output(raw=self.planes))
        return self.planes.tensor

    def _excite(self, shape: WindowShape, ends: tuple[Tensor, Tensor], batch: int) -> None:
        """Compute the excitation of every level. Later levels run on side streams, which are joined
        when their level begins.
        """
        for level in self._levels:
            if level.side_stream is None:
                continue
            level.side_stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(level.side_stream):
                level.excite(shape, ends, batch)
        for level in self._levels:
            if level.side_stream is None:
                level.excite(shape, ends, batch)

    def convolve(
        self, kind: str, layer: Convolution, x: Input, to: OutputColumns, output: Output, *,
        residual: Residual | None = None,
        raised: tuple[int, int, int] | None = None, mirror: bool = False,
    ) -> None:  # fmt: skip
        """One launch of `windowed_convolution`. kind: selects the tile. raised: for a transposed
        convolution, its positions, channels per column, and the column of position 0 relative to
        the first one written; None if positions are columns.
        """
        none, c, n = self._none, layer.channels, layer.out
        places, out, place = raised or (to.count, n, 0)
        grid = 1 if layer.summed > 1 else layer.variants
        tile, rows = self.launch.tile(f"sound {kind}", to.batch * places, self._tiles), to.batch * places
        bm, bn, bk = tile.rows, math.gcd(tile.columns, out), math.gcd(2 * tile.inner // self.dtype.itemsize, c)
        described = self._described and tile.described and raised is None and not x.unit and x.columns == places
        snakes, raw, active = output.snakes, output.raw, output.active
        others = (residual.source if residual else None, raw, active)
        given: list[Any] = [x.source.tensor, layer.weight, *(each.tensor if each else none for each in others)]
        if described:
            flat = TensorDescriptor.from_tensor(layer.weight.view(-1, c), [bn, bk])
            given = [x.source.described(bm, bk), flat, *(each.described(bm, bn) if each else none for each in others)]
        stored = raw or active
        unit = x.unit or c
        self.launch(
            windowed_convolution, (ceil(rows, bm), n // bn, grid), *given[:2], layer.scale, layer.bias, layer.shapes,
            *given[2:],
            snakes.turns if snakes else none, snakes.inverses if snakes else none, *to.ends, rows, places, x.columns,
            x.shift,
            x.source.rows, place, to.count, stored.rows if stored else 0, residual.columns if residual else 0,
            residual.shift if residual else 0,
            residual.source.rows if residual and not residual.shared else 0, to.start, output.slope, MARGIN,
            C=c, UNIT=unit, STEP=unit * x.step, N=n, OUT=out, SUMMED=layer.summed, RATE=to.rate, EXTRA=to.extra,
            RESIDUALS=residual.variants if residual else 0, RAW=raw is not None,
            ACTIVES=0 if active is None else snakes.count if snakes and grid == 1 else 1,
            ACTIVATION=NONE if active is None else SNAKE if snakes else LEAKY, MIRROR=mirror, PRECISION=self._precision,
            DESCRIBED=described, BM=bm, BN=bn, BK=bk, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip


class _Level:
    """One upsampling level with its excitation and residual blocks."""

    def __init__(self, owner: SoundNetwork, weights: Weights, level: int, longest: WindowShape, most: int) -> None:
        config, dtype, device, self._owner, self.level = owner.config, owner.dtype, owner.device, owner, level
        self.side_stream: torch.cuda.Stream | None = None
        """Stream on which the excitation is computed while earlier levels run; None: the current
        stream.
        """
        self._rate, self._all = config.upsample_rates[level], math.prod(config.upsample_rates[: level + 1])
        self._last, self._extra = level == config.levels - 1, int(level == config.levels - 1)
        self._stride, self._slope = config.source_stride(level), LAST_SLOPE if self._last else config.lrelu_slope
        raising = owner.network.raising
        self._up = raising(weights[f"ups.{level}.weight"], weights[f"ups.{level}.bias"], self._rate, dtype)
        self._down = strided(
            weights[f"source_downs.{level}.weight"], weights[f"source_downs.{level}.bias"], owner.spectrum_width, dtype
        )
        self._source = ResidualBlocks(
            weights, [f"source_resblocks.{level}"], [config.source_resblock_kernel_sizes[level]],
            [config.source_resblock_dilation_sizes[level]], dtype, owner.network.lead, averaged=False,
        )  # fmt: skip
        blocks = len(config.resblock_kernel_sizes)
        names = [f"resblocks.{blocks * level + at}" for at in range(blocks)]
        self._blocks = ResidualBlocks(
            weights,
            names,
            list(config.resblock_kernel_sizes),
            list(config.resblock_dilation_sizes),
            dtype,
            owner.network.lead,
            averaged=True,
        )
        channels, shape = self._down.out, longest.levels[level]
        sort = 256 if channels > 128 else 128 if channels > 64 else 64
        self._kinds = {role: f"{role} {sort}" for role in ("down", "source", "up", "block", "mean")}
        heard, merged = most * count(shape.excitation), most * count(shape.merged)

        def columns(variants: int, rows: int, kind: torch.dtype) -> Columns:
            return Columns(variants, rows, channels, kind, device)

        self._wave, self._wave_active, self._wave_between = (
            columns(1, heard, torch.float32),
            *(columns(1, heard, dtype) for _ in range(2)),
        )
        self._start, self._raw = columns(1, merged, torch.float32), columns(blocks, merged, torch.float32)
        self._active, self._between = (columns(blocks, merged, dtype) for _ in range(2))
        self._out = columns(1, merged, dtype)

    def excite(self, shape: WindowShape, ends: tuple[Tensor, Tensor], batch: int) -> None:
        """Compute the excitation of this level from the spectrum."""
        owner, at, wave, active, between = (
            self._owner,
            shape.levels[self.level],
            self._wave,
            self._wave_active,
            self._wave_between,
        )
        to = OutputColumns(ends, batch, count(at.excitation), at.excitation.start, self._all, self._extra)
        begin = at.heard - shape.spectrum.start
        x = Input(owner.spectrum, count(shape.spectrum), begin, owner.spectrum_width, self._stride)
        owner.convolve(self._kinds["down"], self._down, x, to, Output(wave, active, self._source.steps[0][0]))
        for step, (_, one, snakes, two) in enumerate(self._source.steps):
            behind = self._source.steps[step + 1 :]
            output = Output(wave, active, behind[0][0]) if behind else Output(wave)
            owner.convolve(
                self._kinds["source"], one, Input(active, to.count), to, Output(active=between, snakes=snakes)
            )
            owner.convolve(
                self._kinds["source"], two, Input(between, to.count), to, output, residual=Residual(wave, to.count)
            )

    def __call__(self, shape: WindowShape, x: Columns, held: Span, ends: tuple[Tensor, Tensor], batch: int) -> Columns:
        """x: output of the previous level on columns `held` -> output of this level on its
        `merged`, activated for the next layer.
        """
        owner, at, merged = self._owner, shape.levels[self.level], shape.levels[self.level].merged
        to, steps = OutputColumns(ends, batch, count(merged), merged.start, self._all, self._extra), self._blocks.steps
        owner.convolve(
            self._kinds["up"], self._up, Input(x, count(held), at.groups.start - held.start), to,
            Output(self._start, self._active, steps[0][0]),
            residual=Residual(self._wave, count(at.excitation), merged.start - at.excitation.start),
            raised=(count(at.groups), self._down.out, at.raised - merged.start), mirror=self._last,
        )  # fmt: skip
        active, between = Input(self._active, to.count), Input(self._between, to.count)
        for step, (_, one, snakes, two) in enumerate(steps):
            before, behind, many = self._raw if step else self._start, steps[step + 1 :], self._blocks.variants
            residual = Residual(before, to.count, shared=step == 0, variants=1 if behind else many)
            output = (
                Output(self._raw, self._active, behind[0][0]) if behind else Output(active=self._out, slope=self._slope)
            )
            owner.convolve(self._kinds["block"], one, active, to, Output(active=self._between, snakes=snakes))
            owner.convolve(self._kinds["block" if behind else "mean"], two, between, to, output, residual=residual)
        return self._out
