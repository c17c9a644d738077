"""What the kernels can compute, and the block sizes of the products for each number of rows: on an
H200 the fastest of all that were tried (docs/gpu-llm.md, Speed).
"""

from dataclasses import dataclass, replace

from cosyserve.engines.kernel_cache import Unsuitable
from services.llm.generation.config import LlmConfig

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of rows for which a decode step is captured."""
SMALLEST_DIVISOR = 16
"""Matrix units process this many numbers of a row at a time."""
MOST_CANDIDATES = 128
"""Largest top_k of the sampler on the device."""
MOST_IDS = 8192
"""The sampler on the device sorts ids of 13 bits."""
INSTEAD = "set COSYSERVE_LLM_GPU_ENGINE=readable"


@dataclass(frozen=True)
class Blocks:
    """Blocks of one product. rows: BM, 1 for the multiply-and-add form; columns: BN; depth: most
    BK; split: number of programs that share K.
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 4
    split: int = 1


@dataclass(frozen=True)
class Tuning:
    """Blocks of all kernels for one number of rows."""

    heads: Blocks
    out: Blocks
    gated: Blocks
    down: Blocks
    score: Blocks
    splits: int = 8
    """Number of programs that share the keys of one row and key head."""
    attend_warps: int = 4
    attend_stages: int = 2
    pdl: int = 0
    """Programmatic dependent launch, see `kernels.dependent_launch`; prefetching the weights as
    well was slower for every number of rows. 1 is fastest for one row on an otherwise idle GPU, but
    a concurrent pass of the flow then takes 22 to 26 ms instead of 13, as waiting programs occupy
    the device (docs/gpu.md, "A pass next to the speech-token model")."""


ONE = Tuning(
    heads=Blocks(1, 4, 1024, 8, 3),
    out=Blocks(1, 2, 1024, 4, 3),
    gated=Blocks(1, 1, 256, 2, 3),
    down=Blocks(1, 2, 2048, 8, 3),
    score=Blocks(1, 4, 512, 4, 3),
    splits=16,
    attend_warps=2,
    pdl=2,
)
FEW = Tuning(
    heads=Blocks(16, 16, 1024, 4, 3),
    out=Blocks(16, 16, 1024, 4, 3),
    gated=Blocks(16, 16, 128, 1, 3),
    down=Blocks(16, 32, 128, 4, 4, split=8),
    score=Blocks(16, 32, 64, 4, 3),
    splits=8,
    attend_warps=2,
    pdl=2,
)
SOME = Tuning(
    heads=Blocks(32, 16, 128, 4, 6),
    out=Blocks(32, 32, 512, 8, 3, split=2),
    gated=Blocks(32, 16, 128, 2, 3),
    down=Blocks(32, 16, 128, 4, 3, split=8),
    score=Blocks(32, 64, 32, 4, 3),
    splits=4,
    pdl=2,
)
MANY = Tuning(
    heads=Blocks(64, 16, 64, 4, 6),
    out=Blocks(64, 16, 128, 4, 4),
    gated=Blocks(64, 64, 64, 4, 5),
    down=Blocks(64, 32, 128, 4, 4, split=4),
    score=Blocks(64, 32, 64, 4, 3),
    splits=2,
    pdl=2,
)
MOST = replace(MANY, gated=Blocks(128, 64, 64, 8, 5), score=Blocks(64, 64, 64, 4, 3))
TABLE = {1: ONE, 2: FEW, 4: FEW, 8: FEW, 16: replace(FEW, splits=16), 32: SOME, 64: MANY, 128: MOST}
INVARIANT = Tuning(
    heads=Blocks(16, 16, 128, 4, 6),
    out=Blocks(16, 16, 128, 4, 6),
    gated=Blocks(16, 16, 128, 1, 3),
    down=Blocks(16, 32, 128, 4, 4, split=8),
    score=Blocks(16, 32, 64, 4, 3),
    splits=16,
    attend_warps=2,
    pdl=2,
)
"""For all numbers of rows, where a row's numbers must not depend on the number of rows."""
EXACT = Tuning(
    heads=Blocks(16, 16, 64, stages=3),
    out=Blocks(16, 16, 64, stages=3),
    gated=Blocks(16, 16, 64, stages=3),
    down=Blocks(16, 16, 64, stages=3, split=4),
    score=Blocks(16, 32, 64, stages=3),
    splits=4,
)
"""For float32 matrices, which take twice the memory; for comparison, not tuned for speed."""


def tuning(rows: int, *, exact: bool = False, invariant: bool = False) -> Tuning:
    """The tuning of the smallest bucket that holds `rows`. exact: matrices are float32. invariant:
    the same for all buckets, so that a row's numbers do not depend on the number of rows.
    """
    if exact:
        return EXACT
    return INVARIANT if invariant else TABLE[next(bucket for bucket in BUCKETS if rows <= bucket)]


def once(blocks: Blocks, width: int) -> bool:
    """Whether one BK of a form for several rows spans the K of a program."""
    return blocks.rows > 1 and blocks.depth * blocks.split >= width


def depth(blocks: Blocks, width: int) -> int:
    """BK: a power of two; one that divides `width` where a form for several rows walks over it."""
    return blocks.depth if blocks.rows == 1 or once(blocks, width) else min(blocks.depth, width & -width)


def check(config: LlmConfig, most_sequences: int) -> None:
    """Raises Unsuitable naming the size or limit that fused steps do not support."""
    head, top_k = config.head_size, config.sampling.top_k
    widths = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size, "head_size": head}
    obstacles: dict[str, bool] = {
        f"fused steps need a {name} that {SMALLEST_DIVISOR} divides, the model has {width}": width % SMALLEST_DIVISOR
        > 0
        for name, width in widths.items()
    }
    obstacles |= {
        f"fused steps need a head_size that is a power of two, the model has {head}": head & (head - 1) > 0,
        f"fused steps sample among at most {MOST_CANDIDATES} ids, top_k is {top_k}": top_k > MOST_CANDIDATES,
        f"fused steps choose among at most {MOST_IDS} ids, the head has {config.speech.rows}": (
            config.speech.rows > MOST_IDS
        ),
        f"COSYSERVE_LLM_MAX_SEQUENCES is {most_sequences}, fused steps take at most {BUCKETS[-1]}": (
            most_sequences > BUCKETS[-1]
        ),
    }
    for obstacle, present in obstacles.items():
        if present:
            raise Unsuitable(f"{obstacle}; {INSTEAD}")
