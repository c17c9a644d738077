"""What a decode step of the LLM as one launch needs (`services/llm/gpu/one_launch.py`): what its
loader requires, the doctor finds beforehand, and who places engines and shares out memory counts.
"""

from cosyserve.engines.gpu_facts import HOPPER

GPU_DECODE, ONE_LAUNCH = "COSYSERVE_LLM_GPU_DECODE", "one_launch"
"""With this value a decode step of llm occupies all of a GPU, and its programs wait for each
other: beside kernels of another process that wait too, neither may end.
"""
SHARED_KIB = 201
"""KiB of shared memory of one program, at most: a ring of weights, and what its tiles need."""
WEIGHTS_MIB = 705
"""MiB of the weights in the order in which its programs read them, beside those of other steps, at
the published sizes.
"""
_SHARED_KIB = {9: 227, 10: 227, 11: 227, 12: 99}
"""The most that a program can have, by major compute capability; a table of NVIDIA's programming
guide of CUDA C++. Blackwell has two kinds: 10 and 11, and with little of it 12.
"""


def lacking(capability: tuple[int, int]) -> str | None:
    """What it needs and a GPU of this compute capability does not have. None if nothing is known to
    be missing: the loader asks the device itself whether all programs have room.
    """
    has = ".".join(map(str, capability))
    if capability < HOPPER:
        return f"a GPU of compute capability {'.'.join(map(str, HOPPER))} or later, this one has {has}"
    shared = _SHARED_KIB.get(capability[0], SHARED_KIB)
    if shared < SHARED_KIB:
        return f"{SHARED_KIB} KiB of shared memory for a program, this GPU of compute capability {has} has {shared}"
    return None
