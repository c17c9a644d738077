"""The layout of a page of the diffusion transformer."""

from dataclasses import dataclass
from functools import cached_property

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS
from services.token2wav.flow.dit.weights import POSITION_TAPS, DitConfig
from services.token2wav.flow.solver import ROWS
from services.token2wav.gpu.paged_flow.kept_numbers import vectors_elements
from services.token2wav.gpu.paged_flow.page_layout import TAIL_FRAMES, aligned, placed

POSITION_FRAMES = POSITION_TAPS - 1
"""Input frames that a position convolution needs of the previous block."""


@dataclass(frozen=True)
class DitLayout:
    """Offsets in elements from the start of a page; keys, values, `stored` and `ratio` as in
    `page_layout.Layout`. Tails of the two position convolutions are [rows, 30, width].
    """

    config: DitConfig
    stored: bool = True
    ratio: int = 1

    @property
    def _attention(self) -> int:
        heads, width = self.config.heads, self.config.head_width
        return aligned(vectors_elements(ROWS * 2 * CHUNK_FRAMES, heads, width, self.ratio))

    @cached_property
    def _tail(self) -> int:
        return aligned(ROWS * POSITION_FRAMES * self.config.width)

    @cached_property
    def _parts(self) -> dict[str, tuple[int, int]]:
        steps, layers = (EULER_STEPS, self.config.depth) if self.stored else (1, 1)
        return placed(
            {
                "attentions": self._attention * steps * layers,
                "tails": 2 * self._tail * steps,
                "smooth": TAIL_FRAMES * self.config.lookahead_channels,
            }
        )

    @cached_property
    def elements(self) -> int:
        """Size of a page."""
        offset, size = self._parts["smooth"]
        return offset + aligned(size)

    def attention(self, step: int, block: int) -> int:
        """Keys and values of a block in Euler step `step`."""
        at = self._attention * (step * self.config.depth + block) if self.stored else 0
        return self._parts["attentions"][0] + at

    def position_tail(self, step: int, convolution: int) -> int:
        """Tail of the first (0) or second (1) position convolution."""
        return self._parts["tails"][0] + self._tail * (convolution + 2 * step * int(self.stored))

    @property
    def smooth_tail(self) -> int:
        """Tail of the second pre-lookahead convolution, [2, channels]."""
        return self._parts["smooth"][0]
