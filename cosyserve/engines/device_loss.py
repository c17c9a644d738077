"""Which errors mean that a GPU is lost to this process.

After such an error every call of CUDA in the process fails, so retrying is useless: the service
turns NOT_SERVING, its streams go on at another replica, and the process exits with a status of its
own, so that its supervisor starts it again.

Source: the CUDA runtime's list of errors (cudaError_t), of which those are taken that its text says
leave the process in an inconsistent state.
"""

import re
from collections.abc import Iterator

EXIT_STATUS = 4
"""Exit status of a service whose GPU is lost."""
_CODES = frozenset({46, 100, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 806, 810, 999})
"""Of cudaError_t: device unavailable, no device, uncorrectable error of memory or NVLink, contained
error, illegal address, launch timeout, destroyed context, device-side assert, hardware stack,
illegal instruction, misaligned address, address space, program counter, launch failure, MPS failed
or ended this client, unknown.
"""
_TEXTS = re.compile(
    r"""(?:CUDA|CUresult|cuda)[^\n]*?(?:
        an\ illegal\ memory\ access\ was\ encountered
        | illegal\ address
        | unspecified\ launch\ failure
        | device-side\ assert\ triggered
        | uncorrectable\ ECC\ error
        | an\ illegal\ instruction\ was\ encountered
        | misaligned\ address
        | invalid\ program\ counter
        | hardware\ stack\ error
        | operation\ not\ supported\ on\ global/shared\ address\ space
        | the\ launch\ timed\ out
        | device\(s\)\ is/are\ busy\ or\ unavailable
        | no\ CUDA-capable\ device\ is\ detected
        | MPS\ (?:server|client|RPC)[^\n]*(?:fail|terminated|not\ ready)
        | unknown\ error
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_KINDS = ("AcceleratorError", "RuntimeError", "OutOfResources", "CUDAError", "CudaError", "RuntimeException")


class LossReason(str):
    """The reason why a service cannot go on, where it is that its GPU is lost."""


def is_device_loss(error: BaseException) -> bool:
    """Whether `error`, or one that it was raised from, means that the GPU is lost. Without a tensor
    library: by the kind of the error, its code or its text.
    """
    return any(_is_sticky(one) for one in _chain(error))


def loss_reason(error: BaseException) -> LossReason:
    """The reason to give to `Service.broken` for such an error, without what it may quote."""
    return LossReason(f"the GPU is lost to this process ({type(error).__name__}); it has to be started again")


def _is_sticky(error: BaseException) -> bool:
    if not any(kind.__name__ in _KINDS for kind in type(error).__mro__):
        return False
    return getattr(error, "error_code", None) in _CODES or _TEXTS.search(str(error)) is not None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__
