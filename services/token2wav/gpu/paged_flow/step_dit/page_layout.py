"""The layout of pages of Step-Audio2's flow, of two sizes. Pages of the diffusion transformer are
given back when no later block sees them; those of the conformer in front of it are kept, and many
of them fill a page.
"""

from dataclasses import dataclass
from functools import cached_property

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.step_dit.weights import CONVOLUTION_TAPS, StepDitConfig
from services.token2wav.gpu.paged_flow.kept_numbers import vectors_elements
from services.token2wav.gpu.paged_flow.page_layout import FrontLayout, aligned, placed

KEPT_FRAMES = CONVOLUTION_TAPS - 1
"""Input frames that a convolution needs of the previous block."""
_CONVOLUTIONS = 2


@dataclass(frozen=True)
class StepDitLayout:
    """Offsets in elements from the start of a page; keys, values, `stored` and `ratio` as in
    `page_layout.Layout`. Tails of a block's two convolutions are [rows, 2, width].
    """

    config: StepDitConfig
    stored: bool = True
    ratio: int = 1

    @property
    def _attention(self) -> int:
        heads, width = self.config.heads, self.config.head_width
        return aligned(vectors_elements(ROWS * 2 * CHUNK_FRAMES, heads, width, self.ratio))

    @cached_property
    def _tail(self) -> int:
        return aligned(ROWS * KEPT_FRAMES * self.config.width)

    @cached_property
    def _parts(self) -> dict[str, tuple[int, int]]:
        places = EULER_STEPS * self.config.depth if self.stored else 1
        return placed({"attentions": self._attention * places, "tails": _CONVOLUTIONS * self._tail * places})

    @cached_property
    def front(self) -> FrontLayout:
        """Of the conformer's pages."""
        parts = placed(FrontLayout.sizes(self.config, stored=self.stored))
        offset, size = parts["up"]
        return FrontLayout(self.config, offset + aligned(size), parts, stored=self.stored)

    @cached_property
    def fronts(self) -> int:
        """Pages of the conformer that a page has room for: page p is their pages fronts * p on."""
        offset, size = self._parts["tails"]
        return -(-(offset + aligned(size)) // self.front.elements)

    @cached_property
    def elements(self) -> int:
        """Size of a page."""
        return self.fronts * self.front.elements

    def attention(self, step: int, block: int) -> int:
        """Keys and values of a block in Euler step `step`."""
        return self._parts["attentions"][0] + self._attention * self._place(step, block)

    def tail(self, step: int, block: int, convolution: int) -> int:
        """Tail of the first (0) or second (1) convolution of a block."""
        return self._parts["tails"][0] + self._tail * (convolution + _CONVOLUTIONS * self._place(step, block))

    def _place(self, step: int, block: int) -> int:
        return step * self.config.depth + block if self.stored else 0
