"""What NVIDIA's management library says, by a library that answers as it does."""

import ctypes
from typing import Any

import pytest

from cosyserve.metrics import gpus, names
from cosyserve.metrics.gpus import Gpus, GpuState
from tests.stacks.telemetry.scraping import reader

GIB = 1 << 30
NOT_SUPPORTED = 3


class Library:
    """Two GPUs, the second of which says nothing of its use, as a part of a GPU does."""

    fails = False

    def __init__(self, _: str = "") -> None:
        pass

    def nvmlInit_v2(self) -> int:
        return int(self.fails)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0 if index < 2 else 2

    def nvmlDeviceGetHandleByUUID(self, uuid: ctypes.c_char_p, handle: Any) -> int:
        handle._obj.value = 2
        return 0 if uuid.value == b"GPU-5" else 2

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80 * GIB, (handle.value or 0) * GIB
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p, busy: Any) -> int:
        busy._obj.gpu = 35
        return 0 if handle.value == 1 else NOT_SUPPORTED


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, {"0": GpuState(GIB, 80 * GIB, 0.35), "1": GpuState(2 * GIB, 80 * GIB, None)}),
        ("1", {"1": GpuState(2 * GIB, 80 * GIB, None)}),
        ("GPU-5, 0", {"GPU-5": GpuState(2 * GIB, 80 * GIB, None), "0": GpuState(GIB, 80 * GIB, 0.35)}),
        ("", {}),
        ("7", {}),
    ],
)
def test_the_visible_gpus_are_read(visible: str | None, found: dict[str, GpuState]) -> None:
    read = Gpus(Library(), visible)  # type: ignore[arg-type]
    assert read.states() == found
    assert bool(read) == bool(found)


def test_they_are_among_the_metrics_as_long_as_somebody_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.ctypes, "CDLL", Library)
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    kept = gpus.watch()
    scrape = reader().scrape("llm")
    assert scrape.count(names.GPU_MEMORY, gpu="1") == 2 * GIB
    assert scrape.count(names.GPU_MEMORY_LIMIT, gpu="0") == 80 * GIB
    busy = {s.labels["gpu"]: s.value for s in scrape.samples if s.name == names.GPU_UTILISATION.prometheus}
    assert busy == {"0": 0.35}
    del kept
    assert reader().scrape("llm").count(names.GPU_MEMORY, gpu="1") == 0


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "fails", True)
    monkeypatch.setattr(gpus.ctypes, "CDLL", Library)
    assert gpus.watch() is None
    monkeypatch.undo()
    monkeypatch.setattr(gpus, "_LIBRARY", "libno-such-driver.so.1")
    assert gpus.watch() is None
