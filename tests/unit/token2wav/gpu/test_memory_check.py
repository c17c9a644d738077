"""If a GPU has no memory for the paged engine, the error names it and the settings to change."""

import pytest
import torch

from cosyserve.errors import SettingsError
from services.token2wav.gpu.device.suitability import pages_within, reporting_out_of_memory
from services.token2wav.gpu.paged_flow.page_layout import Layout
from tests.unit.token2wav.gpu.small_flow import SMALL

GPU = torch.device("cuda", 1)
ONE = 2 * Layout(SMALL).elements


def test_the_pool_holds_two_seconds_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * ONE, 20 * ONE))
    assert pages_within(3 * ONE - 1, SMALL, torch.bfloat16, GPU) == 2
    assert pages_within(10 * ONE, SMALL, torch.bfloat16, GPU) == 10
    with pytest.raises(SettingsError, match=f"has {10 * ONE} free"):
        pages_within(10 * ONE + 1, SMALL, torch.bfloat16, GPU)
    with pytest.raises(SettingsError, match="two are the least"):
        pages_within(2 * ONE - 1, SMALL, torch.bfloat16, GPU)


def recorded_without_memory() -> None:
    try:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
    finally:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_memory_that_runs_out_names_the_settings() -> None:
    with (
        pytest.raises(SettingsError, match=r"are 77 together; .* cuda:1 has no room for them"),
        reporting_out_of_memory(77, GPU),
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(SettingsError, match="no room"), reporting_out_of_memory(77, GPU):
        recorded_without_memory()
    with pytest.raises(RuntimeError, match="an illegal"), reporting_out_of_memory(77, GPU):
        raise RuntimeError("an illegal memory access")
