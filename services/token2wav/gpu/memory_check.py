"""Whether a GPU has memory for the pages, weights and graphs of the paged engine."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cosyserve.errors import SettingsError
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.gpu.paged_flow.page_layout import Layout


def pages_within(budget: int, config: FlowConfig, dtype: torch.dtype, device: torch.device) -> int:
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
