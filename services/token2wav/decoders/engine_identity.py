"""What tells two engines apart that would give different samples: weights, device and precision as text."""

import torch

from cosyserve.errors import SettingsError

WEIGHTS = ("flow.pt", "hift.pt")


WINDOWED_OPERANDS = {"bfloat16": "float16", "float32": "ieee"}
"""What the windowed vocoder's products take, by gpu_precision; see
`gpu.windowed_vocoder.vocoder`.
"""


def device_of(name: str) -> torch.device:
    """Raises SettingsError for a device that is not there."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise SettingsError(f"device {name!r} is not known; there are cpu, cuda and cuda:N")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def device_text(device: torch.device, threads: int) -> str:
    """What makes two devices round alike: the kernels, which come with torch, and what they run on.

    On a CPU that is the vector instructions that torch uses and the threads that share an
    operation.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()} {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}"


def precision_text(batch_invariant: bool, widest_step: int) -> str:
    """The number type, and whether streams of a step are rows of one batch: sums then round by the
    shape of the batch.
    """
    return "float32" if batch_invariant or widest_step == 1 else f"float32, batches of up to {widest_step} streams"


def paged_precision_text(precision: str, vocoder: str, widest_step: int) -> str:
    """The same of the paged engine, whose batches always decide how sums round."""
    operands = f" of {WINDOWED_OPERANDS[precision]}" if vocoder == "windowed" else ""
    return f"{precision}, paged, {vocoder} vocoder{operands}, batches of up to {widest_step} streams"
