"""The upsampling conformer encoder as a sequence of kernels: the arithmetic of
`flow.unet.encoder` over paged state, 25 tokens per unit.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import (
    CHUNK_FRAMES,
    CHUNK_TOKENS,
    LOOKAHEAD_TOKENS,
    MAX_FLOW_FRAMES,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
)
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.unet.front import FrontConfig
from services.token2wav.gpu.device.launcher import Launcher, ceil, divisor, power
from services.token2wav.gpu.kernels.conformer import (
    embedded,
    looking_ahead,
    norm_scaled,
    relative_attention,
    rotated_queries,
)
from services.token2wav.gpu.kernels.convolution import causal_convolution
from services.token2wav.gpu.kernels.linear import NONE, SILU, normed_linear, onto_residual, queries_keys_values
from services.token2wav.gpu.paged_flow.page_layout import FrontLayout, HasFront
from services.token2wav.gpu.paged_flow.unit_table import IDS, TABLE, UnitTable
from services.token2wav.gpu.paged_flow.weights import Product, convolution, product


class _Conformer:
    def __init__(self, tensors: Tensors, heads: int, dtype: torch.dtype) -> None:
        attention, norm = tensors.within("self_attn"), tensors.within("norm_mha")
        width = attention["linear_q.weight"].shape[0]
        scale = (width // heads) ** -0.5
        parts = [(attention[f"linear_{name}.weight"], attention[f"linear_{name}.bias"]) for name in "qkv"]
        parts[0] = (parts[0][0] * scale, parts[0][1] * scale)
        self.qkv = product(torch.cat([w for w, _ in parts]), torch.cat([b for _, b in parts]), dtype, norm)
        self.content, self.distance = ((attention[f"pos_bias_{name}"] * scale).float().contiguous() for name in "uv")
        # Rows of sines, then of cosines, by input channel; linear_pos maps [2 k] = sine and [2 k +
        # 1] = cosine to the heads' channels.
        self.position = (
            torch.stack((attention["linear_pos.weight"].T[0::2], attention["linear_pos.weight"].T[1::2]))
            .to(dtype)
            .contiguous()
        )
        self.out = product(attention["linear_out.weight"], attention["linear_out.bias"], dtype)
        forward = tensors.within("feed_forward")
        self.widen = product(forward["w_1.weight"], forward["w_1.bias"], dtype, tensors.within("norm_ff"))
        self.narrow = product(forward["w_2.weight"], forward["w_2.bias"], dtype)


class PagedEncoder:
    """Weights, and buffers for a pass over at most `most` units.

    longest_prompt: tokens of the longest prompt that is one block, all of whose tokens see each
    other; 0: prompts are cut like all else.
    """

    def __init__(
        self, config: FrontConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher,
        longest_prompt: int = 0,
    ) -> None:  # fmt: skip
        everything, width = Tensors(tensors), config.encoder_width
        weights = everything.within("encoder")
        device = weights["after_norm.weight"].device
        embed = weights.within("embed.out")
        ids = F.linear(everything["input_embedding.weight"], embed["0.weight"], embed["0.bias"])
        self._embedding = F.layer_norm(ids, (width,), embed["1.weight"], embed["1.bias"]) * math.sqrt(width)
        ahead = weights.within("pre_lookahead_layer")
        self._ahead, self._smooth = convolution(ahead.within("conv1"), dtype), convolution(ahead.within("conv2"), dtype)
        self._layers = [
            _Conformer(weights.within(f"encoders.{at}"), config.encoder_heads, dtype)
            for at in range(config.encoder_layers)
        ]
        self._layers += [
            _Conformer(weights.within(f"up_encoders.{at}"), config.encoder_heads, dtype)
            for at in range(config.encoder_upsampled_layers)
        ]
        self._up = _doubling(weights.within("up_layer.conv"), dtype)
        up_embed = weights.within("up_embed.out")
        self._up_embed = product(up_embed["0.weight"], up_embed["0.bias"], dtype)
        self._up_norm = tuple(up_embed[f"1.{name}"].float().contiguous() for name in ("weight", "bias"))
        project = everything.within("encoder_proj")
        self._project = product(project["weight"], project["bias"], dtype, weights.within("after_norm"))
        self._config, self._launch, self._factor = config, launch, math.sqrt(width)
        self._rotations = {frames: _rotations(frames, width, device) for frames in (CHUNK_TOKENS, CHUNK_FRAMES)}
        # Keys behind a query's unit, in whole units: those of its prompt.
        self._behind = {frames: frames * ceil(longest_prompt, CHUNK_TOKENS) for frames in (CHUNK_TOKENS, CHUNK_FRAMES)}
        self._padded = longest_prompt > 0
        self._distances = {
            frames: _distances(frames + self._behind[frames], farthest, width, device, dtype)
            for frames, farthest in ((CHUNK_TOKENS, MAX_FLOW_FRAMES // 2), (CHUNK_FRAMES, MAX_FLOW_FRAMES))
        }
        rows = most * CHUNK_FRAMES

        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self._embedded, self._seen = zeros(most, IDS, width), zeros(most * CHUNK_TOKENS, width)
        self._tokens_in, self._tokens, self._doubled, self._frames = (zeros(rows, width) for _ in range(4))
        self._queries, self._attended = zeros(rows, width, kind=dtype), zeros(rows, width, kind=dtype)
        self._rotated = zeros(rows, config.encoder_heads, width, kind=dtype)
        self._wide = zeros(rows, config.encoder_feed_forward, kind=dtype)
        self._no_rows = zeros(1)
        self.mu = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """float32 [units, 50, 80] after a pass."""

    def __call__(self, table: UnitTable, pool: Tensor, layout: HasFront, units: int) -> None:
        """Encode the first `units` units into `mu`."""
        front, config, launch, width = layout.front, self._config, self._launch, self._config.encoder_width
        padded_width = power(width)
        tile = launch.tile("encoder convolution", units * CHUNK_TOKENS)
        launch(
            embedded, (units * IDS,), table["ids"], table["known"], self._embedding, self._embedded, N=width,
            NP=padded_width,
        )  # fmt: skip
        rows = units * CHUNK_TOKENS
        launch(
            looking_ahead, (ceil(width, tile.columns), ceil(rows, tile.rows)), self._embedded, self._ahead.weight,
            self._ahead.bias, self._seen, pool, table.front["own"], units, front.elements, front.smooth_tail, C=width,
            N=width, TOKENS=CHUNK_TOKENS, AHEAD=LOOKAHEAD_TOKENS,
            BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._tokens_in[:rows].view(units, CHUNK_TOKENS, width).copy_(self._embedded[:units, :CHUNK_TOKENS])
        self._convolve(
            table, pool, front, rows, self._seen, front.smooth_tail, self._smooth, self._tokens, self._tokens_in
        )
        for at in range(config.encoder_layers):
            tail = front.up_tail if at == config.encoder_layers - 1 else None
            self._conform(self._layers[at], table, pool, front, at, self._tokens, units, CHUNK_TOKENS, tail)
        self._convolve(table, pool, front, rows, self._tokens, front.up_tail, self._up, self._doubled, None)
        rows = units * CHUNK_FRAMES
        self._frames[:rows].zero_()
        # Added to a residual of zeros; the operand is rounded like any other.
        operand = self._attended[:rows]
        operand.copy_(self._doubled[:rows])
        self._onto(table, pool, front, operand, self._up_embed, self._frames, rows, CHUNK_FRAMES, None)
        launch(
            norm_scaled, (ceil(rows, 4),), self._frames, *self._up_norm, self._factor, self._frames, rows, N=width,
            NP=padded_width, BM=4,
        )  # fmt: skip
        for at in range(config.encoder_layers, len(self._layers)):
            self._conform(self._layers[at], table, pool, front, at, self._frames, units, CHUNK_FRAMES, None)
        launch(
            normed_linear, (ceil(MEL_BINS, 16), ceil(rows, 16)), self._frames, self._project.weight,
            self._project.bias, self.mu, rows, N=MEL_BINS, K=width, KP=padded_width, EPS=1e-5, ACTIVATION=NONE, BM=16,
            BN=16, LOOP=1,
        )  # fmt: skip

    def _convolve(
        self, table: UnitTable, pool: Tensor, layout: FrontLayout, rows: int, x: Tensor, tail: int, weights: Product,
        out: Tensor, add: Tensor | None
    ) -> None:  # fmt: skip
        tile, n = self._launch.tile("encoder convolution", rows), weights.bias.shape[0]
        self._launch(
            causal_convolution, (ceil(n, tile.columns), ceil(rows, tile.rows)), x, x, weights.weight, weights.bias,
            weights.weight, weights.bias, self._no_rows if add is None else add, out, out, pool, table.front["own"],
            table.front["before"], table["position"], rows, layout.elements, tail, tail, 0,
            C=self._config.encoder_width, C2=0, N=n, FRAMES=CHUNK_TOKENS, ROWS=1, TAPS=3, SHORTCUT=False,
            ADD=add is not None, TAIL=False, STEP=MEL_FRAMES_PER_TOKEN if self._padded else 0, BM=tile.rows,
            BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip

    def _conform(
        self, weights: _Conformer, table: UnitTable, pool: Tensor, layout: FrontLayout, layer: int, x: Tensor,
        units: int, frames: int, tail: int | None
    ) -> None:  # fmt: skip
        launch, config, width, rows = self._launch, self._config, self._config.encoder_width, units * frames
        heads, kp, offset = config.encoder_heads, power(width), layout.encoder_attention(layer)
        head, pairs = width // heads, width // 2
        tile = launch.tile("wide norm", rows)
        columns = divisor(width, tile.columns)
        launch(
            queries_keys_values, (3 * width // columns, ceil(rows, tile.rows)), x, weights.qkv.weight, weights.qkv.bias,
            self._queries, pool, pool, table.front["own"], rows, layout.elements, offset, INNER=width, K=width, KP=kp,
            EPS=1e-12, FRAMES=frames, ROWS=1, WIDTH=head, RATIO=1, LARGEST=1.0, BM=tile.rows, BN=columns, LOOP=1,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        launch(
            rotated_queries, (ceil(pairs, 64), ceil(rows, 32), heads), self._queries, weights.distance,
            weights.position, self._rotations[frames], self._rotated, rows, HEADS=heads, WIDTH=head, WP=power(head),
            PAIRS=pairs, FRAMES=frames, BM=32, BN=64,
        )  # fmt: skip
        tile = launch.tile("distance", rows)
        launch(
            relative_attention, (units, heads), self._queries, weights.content, self._rotated, self._distances[frames],
            pool, table.front["pages"], table.front["counts"], table["frames" if frames == CHUNK_FRAMES else "tokens"],
            table["skipped"], table["place"], self._attended, layout.elements, offset, TABLE=TABLE, FRAMES=frames,
            FP=power(frames), HEADS=heads, WIDTH=head, WP=power(head), PAIRS=pairs, BEHIND=self._behind[frames],
            SKIP=frames // CHUNK_TOKENS if self._padded else 0, BK=max(divisor(width, tile.inner), 16),
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._onto(table, pool, layout, self._attended, weights.out, x, rows, frames, None)
        tile = launch.tile("wide norm", rows)
        wide = config.encoder_feed_forward
        launch(
            normed_linear, (ceil(wide, tile.columns), ceil(rows, tile.rows)), x, weights.widen.weight,
            weights.widen.bias, self._wide, rows, N=wide, K=width, KP=kp, EPS=1e-12, ACTIVATION=SILU,
            BM=tile.rows, BN=tile.columns, LOOP=1, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        self._onto(table, pool, layout, self._wide, weights.narrow, x, rows, frames, tail)

    def _onto(
        self, table: UnitTable, pool: Tensor, layout: FrontLayout, a: Tensor, weights: Product, x: Tensor, rows: int,
        frames: int, tail: int | None
    ) -> None:  # fmt: skip
        tile, width = self._launch.tile("encoder", rows), self._config.encoder_width
        self._launch(
            onto_residual, (ceil(width, tile.columns), ceil(rows, tile.rows)), a, weights.weight, weights.bias, x,
            pool, table.front["own"], rows, layout.elements, tail or 0, N=width, K=a.shape[1], FRAMES=frames, ROWS=1,
            TAIL=tail is not None, BM=tile.rows, BN=tile.columns, BK=tile.inner, warps=tile.warps, stages=tile.stages,
        )  # fmt: skip


def _doubling(tensors: Tensors, dtype: torch.dtype) -> Product:
    """Nearest-neighbour upsampling by two followed by five causal taps, as one convolution of three
    taps over tokens that gives both frames of each token.

    Frame 2 t sees tokens t - 2, t - 2, t - 1, t - 1, t; frame 2 t + 1 sees t - 2, t - 1, t - 1, t,
    t.
    """
    w = tensors["weight"]
    first = torch.stack((w[:, :, 0] + w[:, :, 1], w[:, :, 2] + w[:, :, 3], w[:, :, 4]), dim=1)
    second = torch.stack((w[:, :, 0], w[:, :, 1] + w[:, :, 2], w[:, :, 3] + w[:, :, 4]), dim=1)
    bias = tensors["bias"].float()
    return Product(torch.cat((first, second)).to(dtype).contiguous(), torch.cat((bias, bias)))


def _rates(width: int, device: torch.device) -> Tensor:
    return torch.exp(torch.arange(0, width, 2, dtype=torch.float64, device=device) * -(math.log(10000.0) / width))


def _rotations(frames: int, width: int, device: torch.device) -> Tensor:
    """float32 [2, frames, width / 2]: sine and cosine of i w."""
    angle = torch.arange(frames, dtype=torch.float64, device=device)[:, None] * _rates(width, device)
    return torch.stack((angle.sin(), angle.cos())).float()


def _distances(frames: int, farthest: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """[frames - 1 + farthest, width]: sines, then cosines of n w, n from 1 - frames to
    farthest - 1.
    """
    angle = torch.arange(1 - frames, farthest, dtype=torch.float64, device=device)[:, None] * _rates(width, device)
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(dtype)
