"""What Triton's language lacks: overlap with the kernel before. Nothing of it happens with PDL = 0;
1: the next kernel may come as soon as this one has begun; 2: when its product is done.

With programmatic dependent launch a kernel starts while the one before still runs. Whatever depends
on that one has to stand behind `wait_for_inputs`; weights do not, so they are on their way by then.
Source: CUDA C++ programming guide, programmatic dependent launch.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def launch_dependents(PDL: tl.constexpr, WHEN: tl.constexpr):
    """Let the next kernel's programs come as soon as there is room, if this is the time."""
    if PDL == WHEN:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Everything that earlier kernels wrote can be read behind this."""
    if PDL > 0:
        gdc_wait()
