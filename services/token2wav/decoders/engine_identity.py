"""The parts of an engine's identity: weight files, device and precision. Engines with equal
identities give equal samples.
"""

import torch

from cosyserve.engines.benchmark_note import TOKEN2WAV
from cosyserve.errors import SettingsError

WEIGHTS = TOKEN2WAV.weight_files
"""Weight files of token2wav in a model directory; the model hash covers them."""


WINDOWED_OPERANDS = {"bfloat16": "float16", "float32": "ieee"}
"""Operand type of the windowed vocoder's matrix products by gpu_precision, see
`gpu.windowed_vocoder.vocoder`.
"""


def device_of(name: str) -> torch.device:
    """The torch device called `name`. Raises SettingsError for a device that does not exist."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise SettingsError(f"device {name!r} is not known; there are cpu, cuda and cuda:N")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def device_text(device: torch.device, threads: int) -> str:
    """Names everything about a device that affects rounding: the kernels, which come with torch,
    and the hardware that runs them.

    On a CPU that is the vector instruction set that torch uses and the number of threads that share
    an operation.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    capability, plural = torch.backends.cpu.get_cpu_capability(), "s" if threads > 1 else ""
    return f"cpu {capability} {threads} thread{plural}, torch {torch.__version__}"


def precision_text(batch_invariant: bool, widest_step: int) -> str:
    """The number type, and whether streams of a step are rows of one batch, because then rounding
    depends on the batch shape.
    """
    return "float32" if batch_invariant or widest_step == 1 else f"float32, batches of up to {widest_step} streams"


def paged_precision_text(precision: str, vocoder: str, widest_step: int, kept: str, clustered_units: int = 0) -> str:
    """The same for the paged engine, where rounding always depends on the batch shape. kept: type
    of the flow's keys and values in pages, as in `EngineSettings.gpu_kv_precision`.
    clustered_units: most units of a batch that thread-block clusters compute.
    """
    operands = f" of {WINDOWED_OPERANDS[precision]}" if vocoder == "windowed" else ""
    numbers = "" if kept == "operands" else f" with keys and values in {kept}"
    clusters = f", up to {clustered_units} in clusters" if clustered_units else ""
    return f"{precision}, paged{numbers}, {vocoder} vocoder{operands}, batches of up to {widest_step} streams{clusters}"
