"""The look-ahead layer in front of the diffusion transformer: the arithmetic of
`flow.layers.LookAhead` over paged state, 25 tokens per unit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.layers import Tensors
from services.token2wav.gpu.device.launcher import Launcher, ceil, power
from services.token2wav.gpu.kernels.conformer import embedded, looking_ahead
from services.token2wav.gpu.kernels.convolution import causal_convolution
from services.token2wav.gpu.paged_flow.dit.page_layout import DitLayout
from services.token2wav.gpu.paged_flow.unit_table import IDS, UnitTable
from services.token2wav.gpu.paged_flow.weights import convolution


class PagedLookAhead:
    """Weights, and buffers for a pass over at most `most` units."""

    def __init__(
        self, config: DitConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype, launch: Launcher
    ) -> None:
        weights = Tensors(tensors)
        layer = weights.within("pre_lookahead_layer")
        self._embedding = weights["input_embedding.weight"].float().contiguous()
        self._ahead, self._smooth = (convolution(layer.within(f"conv{at}"), dtype) for at in (1, 2))
        self._channels, self._launch = config.lookahead_channels, launch

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, device=self._embedding.device)

        self._embedded, self._tokens = zeros(most, IDS, MEL_BINS), zeros(most * CHUNK_TOKENS, MEL_BINS)
        self._seen, self._made = zeros(most * CHUNK_TOKENS, self._channels), zeros(most * CHUNK_TOKENS, MEL_BINS)
        self.mu = zeros(most, CHUNK_FRAMES, MEL_BINS)
        """float32 [units, 50, 80] after a pass."""

    def __call__(self, table: UnitTable, pool: Tensor, layout: DitLayout, units: int) -> None:
        """Write `mu` of the first `units` units."""
        launch, channels, rows = self._launch, self._channels, units * CHUNK_TOKENS
        tile = launch.tile("encoder convolution", rows)
        launch(
            embedded, (units * IDS,), table["ids"], table["known"], self._embedding, self._embedded, N=MEL_BINS,
            NP=power(MEL_BINS),
        )  # fmt: skip
        launch(
            looking_ahead, (ceil(channels, tile.columns), ceil(rows, tile.rows)), self._embedded, self._ahead.weight,
            self._ahead.bias, self._seen, pool, table["own"], units, layout.elements, layout.smooth_tail, C=MEL_BINS,
            N=channels, TOKENS=CHUNK_TOKENS, AHEAD=LOOKAHEAD_TOKENS, BM=tile.rows, BN=tile.columns, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        tokens = self._tokens[:rows]
        tokens.view(units, CHUNK_TOKENS, MEL_BINS).copy_(self._embedded[:units, :CHUNK_TOKENS])
        launch(
            causal_convolution, (ceil(MEL_BINS, tile.columns), ceil(rows, tile.rows)), self._seen, self._seen,
            self._smooth.weight, self._smooth.bias, self._smooth.weight, self._smooth.bias, tokens, self._made,
            self._made, pool, table["own"], table["before"], table["position"], rows, layout.elements,
            layout.smooth_tail, layout.smooth_tail, 0, C=channels, C2=0, N=MEL_BINS, FRAMES=CHUNK_TOKENS, ROWS=1,
            TAPS=3, SHORTCUT=False, ADD=True, TAIL=False, STEP=0, BM=tile.rows, BN=tile.columns, BK=tile.inner,
            warps=tile.warps, stages=tile.stages,
        )  # fmt: skip
        frames = self.mu[:units].view(rows, MEL_FRAMES_PER_TOKEN, MEL_BINS)
        frames.copy_(self._made[:rows, None].expand_as(frames))
