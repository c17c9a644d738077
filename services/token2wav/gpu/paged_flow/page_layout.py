"""The layout of a page: everything that later blocks of a stream need of one grid block, for every
layer, Euler step and guidance row.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, EULER_STEPS, MEL_BINS
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.front import FrontConfig
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.paged_flow.kept_numbers import vectors_elements

TAIL_FRAMES = 2
"""Input frames that a causal convolution of three taps needs of the previous block."""
_ALIGNED = 64


class HasFront(Protocol):
    """A layout of pages with the state of the conformer in front of the estimator."""

    @property
    def front(self) -> "FrontLayout":
        """Where that lies."""


class FrontLayout:
    """Offsets of the conformer's state in a page of so many elements: keys and values of a layer
    are [2, tokens or frames, width]. stored: see `Layout`.
    """

    def __init__(self, config: FrontConfig, elements: int, parts: dict[str, tuple[int, int]], *, stored: bool) -> None:
        self.config, self.elements, self._parts, self._stored = config, elements, parts, int(stored)

    @staticmethod
    def sizes(config: FrontConfig, *, stored: bool) -> dict[str, int]:
        """Of its parts, by name."""
        tokens, frames = (2 * count * config.encoder_width for count in (CHUNK_TOKENS, CHUNK_FRAMES))
        layers, upsampled = (config.encoder_layers, config.encoder_upsampled_layers) if stored else (1, 1)
        tail = TAIL_FRAMES * config.encoder_width
        return {"tokens": tokens * layers, "frames": frames * upsampled, "smooth": tail, "up": tail}

    def encoder_attention(self, layer: int) -> int:
        """Keys and values of conformer layer `layer`; layers after the upsampling continue the
        numbering.
        """
        width, upsampled = self.config.encoder_width, layer - self.config.encoder_layers
        if upsampled < 0:
            return self._parts["tokens"][0] + self._stored * layer * 2 * CHUNK_TOKENS * width
        return self._parts["frames"][0] + self._stored * upsampled * 2 * CHUNK_FRAMES * width

    @property
    def smooth_tail(self) -> int:
        """Tail of the second pre-lookahead convolution, [2, width]."""
        return self._parts["smooth"][0]

    @property
    def up_tail(self) -> int:
        """Rows of the last two tokens before the upsampling, [2, width]."""
        return self._parts["up"][0]


@dataclass(frozen=True)
class Layout:
    """Offsets in elements, which are operands, from the start of a page.

    Keys and values of one attention are [rows, 2, frames, width]; tails, the last inputs of a
    convolution, [rows, 2, channels]. stored False: for passes that recompute a sentence from its
    start. No data is needed after its layer (tails: after its step), so all layers and steps share
    one place. ratio: `KeptNumbers.ratio` of the estimator's keys and values; those of the encoder,
    in bfloat16 0.6% of a page, which all steps depend on, are operands.
    """

    config: UnetConfig
    stored: bool = True
    ratio: int = 1

    @property
    def estimator_layers(self) -> int:
        """Attentions in one pass over the estimator."""
        return (self.config.middle + 2) * self.config.transformers

    @cached_property
    def sites(self) -> dict[str, tuple[int, int]]:
        """Convolutions of the estimator by name: offset within a step's tails, channels."""
        channels = self.config.channels
        widths = {"in": 4 * MEL_BINS, "skip": channels, "end": channels, "final": channels}
        widths |= {f"h{level}": channels for level in range(self.config.middle + 2)}
        widths |= {f"x{level}": channels for level in range(1, self.config.middle + 2)}
        return placed({name: ROWS * TAIL_FRAMES * width for name, width in widths.items()})

    @property
    def _attention(self) -> int:
        heads, width = self.config.estimator_heads, self.config.head_width
        return aligned(vectors_elements(ROWS * 2 * CHUNK_FRAMES, heads, width, self.ratio))

    @cached_property
    def _parts(self) -> dict[str, tuple[int, int]]:
        config = self.config
        steps, layers = (EULER_STEPS, self.estimator_layers) if self.stored else (1, 1)
        return placed(
            {"attentions": self._attention * steps * layers, "tails": self.tail_step * steps}
            | FrontLayout.sizes(config, stored=self.stored)
        )

    @cached_property
    def front(self) -> FrontLayout:
        """The conformer's part of the page."""
        return FrontLayout(self.config, self.elements, self._parts, stored=self.stored)

    @cached_property
    def tail_step(self) -> int:
        """Elements of one Euler step's tails."""
        return sum(aligned(size) for _, size in self.sites.values())

    @cached_property
    def elements(self) -> int:
        """Size of a page."""
        offset, size = self._parts["up"]
        return offset + aligned(size)

    def attention(self, step: int, layer: int) -> int:
        """Keys and values of attention `layer` of the estimator in Euler step `step`."""
        at = self._attention * (step * self.estimator_layers + layer) if self.stored else 0
        return self._parts["attentions"][0] + at

    def tail(self, step: int, site: str) -> int:
        """Tail of a convolution of the estimator."""
        return self._parts["tails"][0] + (self.tail_step * step if self.stored else 0) + self.sites[site][0]


def aligned(size: int) -> int:
    """Elements that a part of so many takes."""
    return -(-size // _ALIGNED) * _ALIGNED


def placed(sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size), one after the other."""
    placed, at = {}, 0
    for name, size in sizes.items():
        placed[name] = (at, size)
        at += aligned(size)
    return placed
