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
