"""Block sizes of the products for each number of rows, measured on an H200 (bench/gpu_llm.py --tune)."""

from dataclasses import dataclass

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of rows for which a decode step is captured."""


@dataclass(frozen=True)
class Blocks:
    """Of one product. `rows`: BM, below 16 for the multiply-and-add form; `columns`: BN; `depth`: BK at most; `split`: programs that share
    K."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 4
    split: int = 1


@dataclass(frozen=True)
class Tuning:
    """Of one number of rows."""

    heads: Blocks
    out: Blocks
    gated: Blocks
    down: Blocks
    score: Blocks
    splits: int = 8
    """Programs that share the keys of one row and key head."""
    attend_warps: int = 4
    attend_stages: int = 2
    pdl: int = 0
    """Programmatic dependent launch, see `device`."""


ONE = Tuning(
    heads=Blocks(1, 2, 1024),
    out=Blocks(1, 4, 1024, 8),
    gated=Blocks(1, 2, 512, 2),
    down=Blocks(1, 2, 2048, 8),
    score=Blocks(1, 4, 1024),
)
FEW = Tuning(
    heads=Blocks(16, 16, 64, 2, 6),
    out=Blocks(16, 16, 128),
    gated=Blocks(16, 32, 128, 2, 3),
    down=Blocks(16, 16, 128, 2, split=8),
    score=Blocks(16, 64, 32, stages=3),
    splits=4,
)
SOME = Tuning(
    heads=Blocks(32, 16, 128, stages=3),
    out=Blocks(32, 16, 128),
    gated=Blocks(32, 32, 64, 2, 3),
    down=Blocks(32, 16, 256, 2, split=4),
    score=Blocks(32, 64, 32, stages=3),
    splits=2,
)
MANY = Tuning(
    heads=Blocks(64, 16, 128, stages=3),
    out=Blocks(64, 16, 128),
    gated=Blocks(64, 64, 128, stages=3),
    down=Blocks(64, 32, 128, split=4),
    score=Blocks(64, 64, 64, stages=3),
    splits=1,
)
EXACT = Tuning(
    heads=Blocks(16, 16, 64, stages=3),
    out=Blocks(16, 16, 64, stages=3),
    gated=Blocks(16, 16, 64, stages=3),
    down=Blocks(16, 16, 64, stages=3, split=4),
    score=Blocks(16, 32, 64, stages=3),
    splits=4,
)
"""For matrices in float32, which take twice the room; made for comparison, not for speed."""


def tuning(rows: int, *, exact: bool = False) -> Tuning:
    """For a bucket of so many rows. exact: matrices are float32."""
    if exact:
        return EXACT
    if rows == 1:
        return ONE
    if rows <= 16:
        return FEW
    return SOME if rows <= 32 else MANY


def depth(blocks: Blocks, width: int) -> int:
    """BK: a power of two; in the form for several rows one that divides `width`."""
    return blocks.depth if blocks.rows < 16 else min(blocks.depth, width & -width)
