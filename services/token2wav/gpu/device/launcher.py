"""How kernels are launched, and with which tiles."""

from dataclasses import dataclass, field
from typing import Any

Grid = tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a program's part of the output, columns of the input per iteration,
    warps, stages of the software pipeline, and number of adjacent parts that a program computes.
    """

    rows: int
    columns: int
    inner: int = 64
    warps: int = 4
    stages: int = 3
    loop: int = 1
    described: bool = False
    """Parts are loaded and stored by TMA descriptors, from Hopper on."""


@dataclass(frozen=True)
class Launcher:
    """chained: programmatic dependent launch (`kernels.dependent_launch`), on Hopper and later."""

    chained: bool = False
    tiles: dict[str, tuple[tuple[int, Tile], ...]] = field(default_factory=dict)
    """By kind of product: (maximum rows of the batch, tile), ascending."""

    def __call__(
        self, kernel: Any, grid: Grid, *arguments: Any, warps: int = 4, stages: int = 3, **constants: Any
    ) -> None:
        """Launch on the current stream."""
        options: dict[str, Any] = {"launch_pdl": True} if self.chained else {}
        kernel[grid](*arguments, **constants, CHAINED=self.chained, num_warps=warps, num_stages=stages, **options)

    def tile(self, kind: str, rows: int, table: "Tiles | None" = None) -> Tile:
        """The tile for a product of `rows` rows. table: used if this launcher has no tiles of this
        kind; None: the flow's table.
        """
        rules = self.rules(kind, table)
        return next((tile for most, tile in rules if rows <= most), rules[-1][1])

    def rules(self, kind: str, table: "Tiles | None" = None) -> tuple[tuple[int, Tile], ...]:
        """All tiles of a kind, each with its maximum number of rows."""
        return self.tiles.get(kind) or (TILES if table is None else table)[kind]


MANY = 1 << 30
Tiles = dict[str, tuple[tuple[int, Tile], ...]]
TILES: dict[str, tuple[tuple[int, Tile], ...]] = {
    "qkv": ((200, Tile(16, 128)), (800, Tile(32, 128)), (MANY, Tile(64, 128, 64, 8))),
    "widen": ((400, Tile(16, 128)), (800, Tile(32, 128)), (MANY, Tile(64, 128))),
    "wide norm": ((200, Tile(16, 64)), (MANY, Tile(32, 64, 64, 8))),
    "out": ((200, Tile(16, 32, 512, 8)), (800, Tile(64, 64, 64, 4, 4)), (MANY, Tile(64, 64, 128))),
    "narrow": ((200, Tile(16, 32, 1024, 8)), (800, Tile(64, 64, 128)), (MANY, Tile(64, 64, 128))),
    "convolution": ((200, Tile(16, 32, 256, 8)), (800, Tile(16, 64, 128)), (MANY, Tile(64, 64, 64, 4, 4))),
    "encoder convolution": ((200, Tile(16, 32, 128)), (MANY, Tile(32, 64, 64))),
    "encoder": ((200, Tile(16, 32, 512, 8)), (MANY, Tile(64, 64, 64, 4, 4))),
    "rows": ((200, Tile(1, 0, 0, 2)), (800, Tile(4, 0)), (MANY, Tile(16, 0))),
    "attention": ((400, Tile(0, 0, 0, 4, 6)), (MANY, Tile(0, 0, 0, 4, 4))),
    "head": ((100, Tile(16, 0, 256, 8, 1)), (MANY, Tile(16, 0, 256, 4, 2))),
    "kept head": ((100, Tile(16, 0, 256, 8, 1)), (MANY, Tile(16, 0, 256, 8, 1))),
    "feed forward": ((200, Tile(16, 0, 128, 8)), (MANY, Tile(32, 0, 128, 8))),
    "distance": ((MANY, Tile(0, 0, 128, 8)),),
    "dit in": ((400, Tile(64, 32, 64, 4, 4)), (800, Tile(128, 64, 64, 8, 3)), (MANY, Tile(128, 128, 64, 8, 3))),
    "dit position": ((100, Tile(16, 0, 64, 4, 4)), (1600, Tile(64, 0, 128, 4, 3)), (MANY, Tile(64, 0, 64, 4, 3))),
    "dit qkv": (
        (100, Tile(64, 64, 128, 4, 4, described=True)),
        (400, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(128, 128, 64, 8, 4, described=True)),
    ),
    "dit attention": ((200, Tile(0, 0, 0, 4, 4)), (800, Tile(0, 0, 0, 4, 6)), (MANY, Tile(0, 0, 0, 4, 2))),
    "dit out": (
        (200, Tile(64, 32, 256, 4, 3, described=True)),
        (400, Tile(64, 64, 128, 4, 4, described=True)),
        (800, Tile(128, 64, 128, 4, 3, described=True)),
        (MANY, Tile(128, 128, 64, 8, 4, described=True)),
    ),
    "dit widen": (
        (200, Tile(64, 64, 128, 4, 4, described=True)),
        (400, Tile(64, 128, 64, 4, 4, described=True)),
        (800, Tile(128, 128, 64, 8, 4, described=True)),
        (MANY, Tile(128, 256, 64, 8, 3, described=True)),
    ),
    "dit narrow": (
        (200, Tile(64, 32, 256, 4, 3, described=True)),
        (400, Tile(64, 64, 128, 4, 4, described=True)),
        (800, Tile(128, 64, 128, 4, 3, described=True)),
        (MANY, Tile(128, 128, 64, 8, 4, described=True)),
    ),
    "step convolution": (
        (200, Tile(64, 32, 128, 4, 4, described=True)),
        (400, Tile(64, 64, 128, 4, 4, described=True)),
        (800, Tile(128, 64, 128, 4, 3, described=True)),
        (MANY, Tile(128, 128, 64, 8, 4, described=True)),
    ),
    "step rows": ((200, Tile(2, 0, 0, 4)), (800, Tile(4, 0)), (MANY, Tile(8, 0))),
    "dit velocity": ((800, Tile(16, 16, 128, 2, 5)), (MANY, Tile(64, 16, 128, 4, 4))),
}
"""For bfloat16. wide norm: of the encoder, whose normalised rows have 512 columns. head: rows are
frames, inner is keys per iteration. This one and feed forward were chosen by the time of whole
passes (docs/log.md, Speed on a GPU), the others by the time of their own launches on an H200, those
of the diffusion transformer on an H100.
"""
_EXACT: tuple[tuple[int, Tile], ...] = ((MANY, Tile(16, 32, 32, 4, 2)),)
_EXACT_KINDS = (
    "qkv", "widen", "wide norm", "out", "narrow", "convolution", "encoder convolution", "encoder", "dit in",
    "dit position", "dit qkv", "dit out", "dit widen", "dit narrow", "dit velocity", "step convolution",
)  # fmt: skip
EXACT_TILES: dict[str, tuple[tuple[int, Tile], ...]] = dict[str, tuple[tuple[int, Tile], ...]].fromkeys(
    _EXACT_KINDS, _EXACT
) | {
    "distance": ((MANY, Tile(0, 0, 32, 4, 2)),),
    "attention": ((MANY, Tile(0, 0, 0, 4, 3)),),
    "dit attention": ((MANY, Tile(0, 0, 0, 4, 3)),),
    "step rows": ((MANY, Tile(4, 0)),),
}
"""For float32, whose products do not use matrix units."""


def ceil(a: int, b: int) -> int:
    """Number of parts of size b that cover a."""
    return -(-a // b)


def power(n: int) -> int:
    """The smallest power of two that is at least n and at least 16."""
    return max(16, 1 << (n - 1).bit_length())


def divisor(width: int, most: int) -> int:
    """The largest power of two up to `most` that divides `width`."""
    return min(most, width & -width)


SOUND_TILES: Tiles = {
    "excitation": ((MANY, Tile(256, 0)),),
    "pitch": (
        (130, Tile(16, 32, 64, 4, 4)),
        (1000, Tile(32, 32, 64)),
        (2000, Tile(64, 32, 32)),
        (MANY, Tile(32, 64, 32)),
    ),
    "sound pre": (
        (144, Tile(64, 32, 64, 4, 4)),
        (407, Tile(32, 32, 128, 4, 4)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound up 256": (
        (401, Tile(32, 64, 64, 4, 4)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound up 128": ((MANY, Tile(64, 64, 64, 8, 3)),),
    "sound up 64": (
        (4086, Tile(32, 32, 128, 4, 4)),
        (11556, Tile(128, 32, 64, 4, 3)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound down 256": ((MANY, Tile(64, 64, 64)),),
    "sound down 128": ((MANY, Tile(64, 64, 64)),),
    "sound down 64": ((MANY, Tile(64, 64, 64)),),
    "sound source 256": (
        (1254, Tile(64, 32, 128, 4, 4, described=True)),
        (3546, Tile(64, 128, 128, 4, 3, described=True)),
        (7093, Tile(64, 256, 64, 4, 3, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound source 128": (
        (4474, Tile(64, 64, 64, 4, 4, described=True)),
        (12654, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound source 64": (
        (12498, Tile(64, 64, 64, 4, 4, described=True)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound block 256": (
        (1110, Tile(64, 32, 128, 4, 4, described=True)),
        (6279, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound block 128": (
        (4330, Tile(64, 128, 128, 4, 3, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound block 64": (
        (12258, Tile(128, 64, 64, 4, 4, described=True)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound mean 256": (
        (1110, Tile(64, 32, 128, 4, 3)),
        (3139, Tile(64, 128, 128, 4, 3, described=True)),
        (6279, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound mean 128": (
        (4330, Tile(64, 64, 128, 4, 3)),
        (12247, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound mean 64": (
        (12258, Tile(64, 64, 64, 8, 3)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound post": ((MANY, Tile(64, 32, 64)),),
}
"""Of the vocoder's kernels, by kind of product and channels of the output: on an H200 in float16
the fastest of all that were tried, each kind of launch by itself.
"""
EXACT_SOUND_TILES: Tiles = dict[str, tuple[tuple[int, Tile], ...]].fromkeys(
    SOUND_TILES, ((MANY, Tile(16, 32, 32, 4, 2)),)
)
"""For float32 without matrix units."""
