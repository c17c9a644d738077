"""Block sizes of the products for each number of rows, measured on an H200 (bench/gpu_llm.py --tune)."""

from dataclasses import dataclass

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of rows for which a decode step is captured."""


@dataclass(frozen=True)
class Blocks:
    """Of one product. `rows`: BM, 1 for the multiply-and-add form; `columns`: BN; `depth`: BK at most; `split`: programs that share K."""

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
    pdl: bool = False
    """Programmatic dependent launch."""


ONE = Tuning(
    heads=Blocks(1, 8, 1024),
    out=Blocks(1, 8, 1024),
    gated=Blocks(1, 8, 1024),
    down=Blocks(1, 8, 1024, warps=8),
    score=Blocks(1, 16, 512),
)
FEW = Tuning(
    heads=Blocks(16, 16, 128),
    out=Blocks(16, 16, 128),
    gated=Blocks(16, 32, 128),
    down=Blocks(16, 32, 256, split=8),
    score=Blocks(16, 64, 64),
)


def _many(rows: int) -> Tuning:
    return Tuning(
        heads=Blocks(rows, 32, 128),
        out=Blocks(rows, 32, 128),
        gated=Blocks(rows, 64, 128),
        down=Blocks(rows, 64, 128, split=8),
        score=Blocks(rows, 64, 32),
    )


def tuning(rows: int) -> Tuning:
    """For a bucket of so many rows."""
    if rows == 1:
        return ONE
    return FEW if rows <= 16 else _many(min(rows, 64))


def depth(blocks: Blocks, width: int) -> int:
    """BK: a power of two; in the form for several rows one that divides `width`."""
    return blocks.depth if blocks.rows == 1 else min(blocks.depth, width & -width)
