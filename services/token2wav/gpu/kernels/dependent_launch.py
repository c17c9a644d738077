"""Kernels of one graph follow each other closely: each says at once that the next may be scheduled,
fetches its weights, and waits.

Programmatic dependent launch of Hopper: `wait` returns when all that the kernels before wrote can
be seen, so only what no kernel writes may be read before it: weights, and the table of a pass,
which is there before its first kernel begins. Every kernel of a chain waits, hence a kernel that
has finished means all before it have too.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def announce(CHAINED: tl.constexpr):
    """Let the next kernel be scheduled."""
    if CHAINED:
        gdc_launch_dependents()


@triton.jit
def wait(CHAINED: tl.constexpr):
    """Until the kernels before are done."""
    if CHAINED:
        gdc_wait()
