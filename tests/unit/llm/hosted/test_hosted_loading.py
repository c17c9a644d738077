"""Loading of the fake libraries in a container and on a shared GPU, and an engine that dies while
it is idle.
"""

import asyncio
import importlib
import os
import threading
from pathlib import Path
from types import ModuleType

import pytest

from cosyserve.engines.gpu_facts import Gpu
from cosyserve.errors import InternalFault, SettingsError
from services.llm.hosted import installed_libraries
from services.llm.hosted.trtllm_backend import SINGLE_PROCESS
from services.llm.hosted.vllm import vllm_backend
from services.llm.loading import load_chosen
from tests.unit.llm.hosted import fake_tensorrt_llm, fake_vllm
from tests.unit.llm.hosted.hosts import host, hosted, library, load
from tests.unit.llm.tiny_llm import sentence, settings, tokens


@pytest.mark.parametrize("chosen", [None, "0"])
async def test_tensorrt_llm_runs_in_this_process_unless_the_user_wants_another(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    """The variable is there before the library is imported: it is read once."""
    at_import: list[str | None] = []

    def watched(name: str) -> ModuleType:
        if name == "tensorrt_llm":
            at_import.append(os.environ.get(SINGLE_PROCESS))
        return importlib.import_module(name)

    with library("tensorrt_llm", monkeypatch):
        if chosen is None:
            monkeypatch.delenv(SINGLE_PROCESS)
        else:
            monkeypatch.setenv(SINGLE_PROCESS, chosen)
        monkeypatch.setattr(installed_libraries, "importlib", _Imports(watched))
        backend = load("tensorrt_llm", converted)
        try:
            assert at_import == [chosen or "1"]
            assert host(backend).in_process is (chosen is None)
            assert await tokens(backend, sentence(1))
        finally:
            await backend.close()


class _Imports:
    """importlib with another import_module."""

    def __init__(self, import_module: object) -> None:
        self.import_module, self.util = import_module, importlib.util


async def test_a_load_that_waits_for_a_process_that_never_comes_is_stepped_over(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    over = threading.Event()
    monkeypatch.setattr(fake_tensorrt_llm.LLM, "spawn_fails", over)
    with library("tensorrt_llm", monkeypatch, own_process="0"):
        wanted = settings(backend="tensorrt_llm", device="auto", converted=converted, load_seconds=0.5)
        try:
            with pytest.raises(
                SettingsError, match=r"^tensorrt_llm did not load in 0\.5 s, the limit that LOAD_SECONDS sets$"
            ):
                load_chosen(wanted)
        finally:
            over.set()


async def test_vllm_starts_next_to_another_engine_on_the_same_gpu(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    """20 of 24 GiB are free, and the library by itself asks for 0.92 of all."""
    monkeypatch.setattr(fake_vllm, "memory", fake_vllm.Memory(free=20 << 30))
    async with hosted("vllm", monkeypatch, converted) as backend:
        assert host(backend).arguments.gpu_memory_utilization == pytest.approx((4 + 2) / 24, abs=0.001)
        assert await tokens(backend, sentence(1))


async def test_vllm_that_has_no_room_is_refused_before_it_fills_the_gpu(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    monkeypatch.setattr(fake_vllm, "memory", fake_vllm.Memory(free=5 << 30))
    with library("vllm", monkeypatch), pytest.raises(Exception, match="Free memory on device cuda:0"):
        load("vllm", converted)


@pytest.mark.parametrize(
    ("memory_mib", "kv_gib", "share"),
    [(0, 4, 0.05), (None, 4, 0.05), (24 << 10, 4, 0.25), (4 << 10, 4, 0.92), (1 << 20, 1, 0.01)],
)
def test_the_share_of_the_gpu_that_is_asked_for(
    memory_mib: int | None, kv_gib: int, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visible = [] if memory_mib is None else [Gpu("GPU", (8, 9), "1", memory_mib, memory_mib)]
    monkeypatch.setattr(vllm_backend, "gpus", lambda: visible)
    assert vllm_backend.gpu_share(tmp_path, kv_gib << 30) == pytest.approx(share, abs=0.001)


async def test_an_engine_that_dies_while_idle_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    faults: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(fake_vllm.AsyncLLM, "with_core", True)
    async with hosted("vllm", monkeypatch, converted, on_fault=faults.put_nowait) as backend:
        await backend.warm_up()
        assert await tokens(backend, sentence(1))
        host(backend).core.kill()
        async with asyncio.timeout(10):
            reason = await faults.get()
        assert reason == "a process of the speech-token engine has ended, and the service has to be restarted"
        with pytest.raises(InternalFault, match="has ended"):
            await tokens(backend, sentence(1))
    assert faults.empty()


async def test_an_engine_that_is_shut_down_is_no_fault(monkeypatch: pytest.MonkeyPatch, converted: Path) -> None:
    faults: list[str] = []
    monkeypatch.setattr(fake_vllm.AsyncLLM, "with_core", True)
    async with hosted("vllm", monkeypatch, converted, on_fault=faults.append) as backend:
        await backend.warm_up()
    await asyncio.sleep(0.1)
    assert faults == []


def test_a_library_without_a_distribution_of_its_name_is_asked_itself(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    with library("vllm", monkeypatch, "0.9.1"):
        monkeypatch.setattr(installed_libraries, "library_versions", lambda *names: {})
        with pytest.raises(SettingsError, match=r"vllm 0\.9 is installed, the oldest supported is 0\.11"):
            load_chosen(settings(backend="vllm", device="auto", converted=converted))
    with library("vllm", monkeypatch, "0.33.0"):
        monkeypatch.setattr(installed_libraries, "library_versions", lambda *names: {})
        assert installed_libraries.vllm_refusal(settings(backend="vllm", device="auto", converted=converted)) == ""
