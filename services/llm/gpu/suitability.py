"""Checks whether GPU, installation, model and limits suit fused steps, without importing Triton."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cosyserve.errors import SettingsError
from services.llm.generation.config import LlmConfig
from services.llm.gpu.tuning import BUCKETS

SMALLEST_DIVISOR = 16
"""Matrix units process this many numbers of a row at a time."""
MOST_CANDIDATES = 128
"""Largest top_k of the sampler on the device."""
OLDEST_DEVICE = (8, 0)
"""Lowest compute capability with bfloat16 matrix units: Ampere."""
_INSTEAD = "set COSYSERVE_LLM_GPU_ENGINE=readable"


class Unsuitable(SettingsError):
    """Fused steps cannot run on this GPU, with this installation, or for this model and these
    limits; the readable engine can.
    """


def check_device(device: torch.device) -> None:
    """Raises Unsuitable for a GPU older than Ampere."""
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_DEVICE:
        raise Unsuitable(
            f"fused steps need a GPU of compute capability 8.0, this one has {'.'.join(map(str, capability))}; "
            f"{_INSTEAD}"
        )


@contextmanager
def kernels_compile() -> Iterator[None]:
    """Context in which kernels are imported and compiled. Raises Unsuitable where Triton is missing
    or too old, finds no C compiler for its launchers, or a kernel needs more resources than a
    multiprocessor of this GPU has; other errors are not changed.
    """
    try:
        yield
    except ImportError as error:
        raise Unsuitable(f"fused steps need Triton 3.6 or later ({error}); {_INSTEAD}") from error
    except Exception as error:
        if not _about_compiling(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise Unsuitable(f"the fused kernels cannot be compiled here ({reason}); {_INSTEAD}") from error


def _about_compiling(error: Exception) -> bool:
    from triton.errors import TritonError

    return isinstance(error, (TritonError, subprocess.CalledProcessError)) or "C compiler" in str(error)


def check(config: LlmConfig, most_sequences: int) -> None:
    """Raises Unsuitable naming the size or limit that fused steps do not support."""
    head = config.head_size
    widths = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size, "head_size": head}
    for name, width in widths.items():
        if width % SMALLEST_DIVISOR:
            raise Unsuitable(
                f"fused steps need a {name} that {SMALLEST_DIVISOR} divides, the model has {width}; {_INSTEAD}"
            )
    if head & (head - 1):
        raise Unsuitable(f"fused steps need a head_size that is a power of two, the model has {head}; {_INSTEAD}")
    if config.sampling.top_k > MOST_CANDIDATES:
        raise Unsuitable(
            f"fused steps sample among at most {MOST_CANDIDATES} ids, top_k is {config.sampling.top_k}; {_INSTEAD}"
        )
    if most_sequences > BUCKETS[-1]:
        raise Unsuitable(
            f"COSYSERVE_LLM_MAX_SEQUENCES is {most_sequences}, fused steps take at most {BUCKETS[-1]}; {_INSTEAD}"
        )
