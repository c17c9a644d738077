"""If the paged engine cannot run, or the GPU has no memory for it, the reason is reported with the
settings to change, and the readable engine serves unless the settings require the paged one.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.errors import SettingsError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.model_directory import ModelDirectory
from services.token2wav import torch_backend
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.gpu.device.suitability import kernels_compile, pages_within, reporting_out_of_memory
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_backend
from tests.stacks.up_process import TINY3

CPU, MODULE = torch.device("cpu"), "services.token2wav.gpu.backend"
GPU = EngineSettings(model=Path(__file__).parents[3] / "golden" / "tiny", device="cuda")


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selects the engine as on a GPU; the weights stay on the CPU."""
    load_flow, load_vocoder = torch_backend.load_flow, torch_backend.load_vocoder
    monkeypatch.setattr(torch_backend, "device_of", torch.device)
    monkeypatch.setattr(torch_backend, "load_flow", lambda directory, device: load_flow(directory, CPU))
    monkeypatch.setattr(torch_backend, "load_vocoder", lambda directory, device: load_vocoder(directory, CPU))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def fails_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    """The paged engine fails while its kernels are compiled."""
    pytest.importorskip("triton")
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(load_paged=kernels_compile()(Mock(side_effect=error))))
    return "cuda"


def without_triton(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, MODULE, None)
    return "cuda"


def older_than_ampere(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    return "cuda:0"


def another_gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    return "cuda:1"


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    return fails_with(RuntimeError("Failed to find C compiler. Please specify one.\nsecond line"), monkeypatch)


def too_small_a_multiprocessor(monkeypatch: pytest.MonkeyPatch) -> str:
    errors = pytest.importorskip("triton.runtime.errors")
    return fails_with(errors.OutOfResources(200000, 101376, "shared memory"), monkeypatch)


def another_flow(monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("triton")
    from services.token2wav.gpu.paged_flow import networks

    made_up = replace(COSYVOICE3, title="Another", flow_network="made-up")
    monkeypatch.setattr(networks, "token2wav_networks", lambda directory: made_up)
    return "cuda"


OBSTACLES = [
    (another_flow, "networks conformer-dit, conformer-unet, dit; that of .*tiny, Another, is made-up; COSY"),
    (
        without_triton,
        r"the paged engine needs Triton 3\.6 or later .*; COSYSERVE_TOKEN2WAV_GPU_ENGINE=readable does without",
    ),
    (older_than_ampere, "the paged engine needs compute capability 8.0, cuda:0 has 7.5; COSY"),
    (
        another_gpu,
        "the paged engine runs on the first visible GPU, not cuda:1; choose it with CUDA_VISIBLE_DEVICES; COSY",
    ),
    (without_compiler, r"cannot be compiled here \(Failed to find C compiler\. Please specify one\.\); COSY"),
    (too_small_a_multiprocessor, r"cannot be compiled here \(out of resource: shared memory, .*\); COSY"),
]


@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES)
def test_the_readable_engine_serves_unless_the_paged_one_is_asked_for(
    obstacle: Callable[[pytest.MonkeyPatch], str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = replace(GPU, device=obstacle(monkeypatch))
    with pytest.raises(SettingsError, match=reason):
        load_backend("torch", replace(settings, gpu_engine="paged"))
    assert not caplog.records
    served = load_backend("torch", settings)
    assert type(served.decoders[Profile.CONTINUOUS]) is ContinuousDecoder
    assert served.identity.precision == "float32"
    (record,) = caplog.records
    assert re.search(f"^falling back to the readable engine, which is far slower: .*{reason}", record.getMessage())


@pytest.mark.parametrize(
    "error", [SettingsError("a budget that does not fit"), RuntimeError("an illegal memory access")]
)
def test_what_is_no_obstacle_is_no_reason_to_serve_slower(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(error, monkeypatch)
    with pytest.raises(type(error), match=str(error)):
        load_backend("torch", GPU)


def test_readable_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    older_than_ampere(monkeypatch)
    load_backend("torch", replace(GPU, gpu_engine="readable"))
    assert not caplog.records


SECOND = torch.device("cuda", 1)
ONE = 1000


def test_the_pool_holds_two_seconds_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * ONE, 20 * ONE))
    assert pages_within(3 * ONE - 1, ONE, SECOND) == 2
    assert pages_within(10 * ONE, ONE, SECOND) == 10
    with pytest.raises(SettingsError, match=f"has {10 * ONE} free"):
        pages_within(10 * ONE + 1, ONE, SECOND)
    with pytest.raises(SettingsError, match="two are the least"):
        pages_within(2 * ONE - 1, ONE, SECOND)


def recorded_without_memory() -> None:
    try:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
    finally:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_memory_that_runs_out_names_the_settings() -> None:
    with (
        pytest.raises(SettingsError, match=r"are 77 together; .* cuda:1 has no room for them"),
        reporting_out_of_memory(77, SECOND),
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(SettingsError, match="no room"), reporting_out_of_memory(77, SECOND):
        recorded_without_memory()
    with pytest.raises(RuntimeError, match="an illegal"), reporting_out_of_memory(77, SECOND):
        raise RuntimeError("an illegal memory access")


def test_the_windowed_vocoder_names_the_network_that_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from services.token2wav.gpu.windowed_vocoder import loading

    monkeypatch.setattr(loading, "token2wav_networks", lambda _: replace(COSYVOICE3, vocoder_network="made-up"))
    with pytest.raises(Unsuitable, match=r"^gpu_vocoder windowed runs .* hift, causal-hift; that of .* is made-up$"):
        loading.load_windowed(ModelDirectory(TINY3), CPU, slots=2)


def test_heads_that_the_transformers_kernels_cannot_take_are_named() -> None:
    """So that `auto` takes the readable engine."""
    pytest.importorskip("triton")
    from services.token2wav.gpu.device.launcher import Launcher
    from services.token2wav.gpu.paged_flow.dit.transformer import Sizes, StreamBuffers

    with pytest.raises(Unsuitable, match=r"heads whose width is a power of two, not 24$"):
        StreamBuffers(Sizes(48, 2, 24, 96, 0.7), 1, torch.float32, Launcher(), CPU, 1, 1)
