"""Overlaps consecutive kernels of a graph: each kernel allows the next one to be scheduled at once,
loads its weights, and waits.

Programmatic dependent launch of Hopper: `wait` returns when all writes of the previous kernels are
visible. So before it a kernel may read only what no kernel writes: weights, and the table of a
pass, which is complete before the first kernel begins. Every kernel of a chain waits, hence a
finished kernel implies that all previous ones have finished.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def announce(CHAINED: tl.constexpr):
    """Allow the next kernel to be scheduled."""
    if CHAINED:
        gdc_launch_dependents()


@triton.jit
def wait(CHAINED: tl.constexpr):
    """Wait until the previous kernels have finished."""
    if CHAINED:
        gdc_wait()


@triton.jit
def fetch_weights(w, columns, N: tl.constexpr, K: tl.constexpr, CHAINED: tl.constexpr):
    """Bring rows `columns` of weights [N, K] into the second cache, before the wait: a kernel that
    loads them piece by piece behind it would otherwise wait for the memory as well.
    """
    if CHAINED:
        line: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth
        lines: tl.constexpr = triton.next_power_of_2((K + line - 1) // line)
        inner = tl.minimum(tl.arange(0, lines) * line, K - 1)
        at = w + tl.minimum(columns, N - 1)[:, None] * K + inner[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )
