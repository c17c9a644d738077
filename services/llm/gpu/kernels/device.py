"""What Triton's language lacks: overlap with the kernel before. Nothing of it happens with PDL = 0; 1: the next kernel may come as soon as
this one has begun; 2: when its product is done; 3: as 2, and it sends for its weights before it waits.

With programmatic dependent launch a kernel starts while the one before still runs. Whatever depends on that one has to stand behind
`wait_for_inputs`; weights do not, so they are on their way by then. Source: CUDA C++ programming guide, programmatic dependent launch.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_next(PDL: tl.constexpr, WHEN: tl.constexpr):
    """Let the next kernel's programs come as soon as there is room, if this is the time."""
    now: tl.constexpr = PDL == WHEN or (PDL == 3 and WHEN == 2)
    if now:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Everything that earlier kernels wrote can be read behind this."""
    if PDL > 0:
        gdc_wait()


@triton.jit
def fetch_ahead(weights, columns, begin, last, K: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr):
    """Ask the L2 cache for rows `columns` of a row-major matrix of width K, clamped to `last`, LINES lines of 128 bytes from `begin` on."""
    if PDL == 3:
        line: tl.constexpr = 128 // (weights.dtype.element_ty.primitive_bitwidth // 8)
        across = tl.minimum(begin + tl.arange(0, LINES) * line, K - 1)
        at = weights + tl.minimum(columns, last)[:, None] * K + across[None, :]
        tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1)
