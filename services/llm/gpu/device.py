"""What Triton's language lacks: waiting for the kernel before, and fetching weights meanwhile. Both do nothing unless `PDL` is set.

With programmatic dependent launch a kernel starts while the one before still runs. Whatever depends on that one has to stand behind
`wait_for_inputs`; weights do not, so they are on their way from memory to the L2 cache by then. Source: CUDA C++ programming guide,
programmatic dependent launch; PTX, griddepcontrol and prefetch.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_next(PDL: tl.constexpr):
    """Let the next kernel's programs come as soon as there is room."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Everything that earlier kernels wrote can be read behind this."""
    if PDL:
        gdc_wait()


@triton.jit
def fetch_ahead(weights, first, begin, COUNT: tl.constexpr, WIDTH: tl.constexpr, LINES: tl.constexpr, last, PDL: tl.constexpr):
    """Ask for rows `first` to `first + COUNT - 1` (below `last`) of a row-major matrix of WIDTH columns, from column `begin` on, LINES lines
    of 128 bytes each. LINES: a power of two."""
    if PDL:
        per_line: tl.constexpr = 128 // (weights.dtype.element_ty.primitive_bitwidth // 8)
        rows = first + tl.arange(0, COUNT)
        columns = begin + tl.arange(0, LINES) * per_line
        rows = tl.minimum(rows, last - 1)
        columns = tl.minimum(columns, WIDTH - 1)
        at = weights + rows[:, None] * WIDTH + columns[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )
