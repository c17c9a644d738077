"""Programmatic dependent launch: a kernel starts while the previous one still runs. PDL = 0:
disabled; 1: the next kernel may start as soon as this one has begun; 2: when the product of this
one is done.

Reads of the previous kernel's results have to follow `wait_for_inputs`; weights are loaded before
it. Source: CUDA C++ programming guide, programmatic dependent launch.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def launch_dependents(PDL: tl.constexpr, WHEN: tl.constexpr):
    """Allow the programs of the next kernel to start, if PDL is WHEN."""
    if PDL == WHEN:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait until the results of earlier kernels can be read."""
    if PDL > 0:
        gdc_wait()
