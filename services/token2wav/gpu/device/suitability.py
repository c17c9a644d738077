"""Whether the paged engine can run this model, on this GPU and with the installed software, and
whether the GPU has memory for its pages, weights and graphs. Works without Triton.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from cosyserve.engines import kernel_cache
from cosyserve.engines.gpu_facts import AMPERE
from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.errors import SettingsError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.paged_flow.page_layout import Layout

FLOW_NETWORK = "conformer-unet"
_ALTERNATIVE = "COSYSERVE_TOKEN2WAV_GPU_ENGINE=readable does without"


def check_device(device: torch.device) -> None:
    """Raises Unsuitable for a GPU older than Ampere, and for a GPU other than the current one,
    where kernels are launched and graphs recorded.
    """
    capability = torch.cuda.get_device_capability(device)
    if capability < AMPERE:
        raise Unsuitable(
            f"the paged engine needs compute capability 8.0, {device} has {'.'.join(map(str, capability))}; "
            f"{_ALTERNATIVE}"
        )
    if device.index not in (None, torch.cuda.current_device()):
        raise Unsuitable(
            f"the paged engine runs on the first visible GPU, not {device}; choose it with CUDA_VISIBLE_DEVICES; "
            f"{_ALTERNATIVE}"
        )


def check_flow(directory: ModelDirectory) -> None:
    """Raises Unsuitable for a flow without kernels."""
    networks = token2wav_networks(directory)
    if networks.flow_network != FLOW_NETWORK:
        raise Unsuitable(
            f"the paged engine computes the flow network {FLOW_NETWORK}; that of {directory.path}, "
            f"{networks.title}, is {networks.flow_network}; {_ALTERNATIVE}"
        )


def kernels_compile() -> AbstractContextManager[None]:
    """As `cosyserve.engines.kernel_cache.kernels_compile`, for the paged engine."""
    return kernel_cache.kernels_compile("the paged engine needs", "the kernels of the paged engine", _ALTERNATIVE)


def pages_within(budget: int, config: UnetConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Pages in `budget` bytes. Raises SettingsError if they hold less than two seconds of audio or
    exceed the free memory.
    """
    one = Layout(config).elements * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if budget > free:
        raise SettingsError(f"state_bytes and prompt_cache_bytes are {budget} together; {device} has {free} free")
    if budget < 2 * one:
        raise SettingsError(
            f"state_bytes and prompt_cache_bytes are {budget} together; a second of sound takes {one}, two are the "
            "least"
        )
    return budget // one


@contextmanager
def reporting_out_of_memory(budget: int, device: torch.device) -> Iterator[None]:
    """Around reading weights and recording graphs, with `budget` bytes of pages allocated; raises
    SettingsError if memory runs out.
    """
    try:
        yield
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        raise SettingsError(
            f"state_bytes and prompt_cache_bytes are {budget} together; "
            f"next to the engine's own weights and graphs {device} has no room for them"
        ) from error


def _out_of_memory(error: BaseException | None) -> bool:
    """Also checks the context of the error, because the end of a recording hides the original
    one.
    """
    while error is not None:
        if isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in str(error):
            return True
        error = error.__context__
    return False
