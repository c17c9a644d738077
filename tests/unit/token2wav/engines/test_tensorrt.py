"""`services.token2wav.engines.tensorrt` and the tool that builds plans, over a fake tensorrt that
checks the rules and computes. Of ONNX Runtime for a GPU, a wheel without CUDA and a wheel that
would silently compute on the CPU are refused.
"""

import asyncio
import builtins
import io
import re
import sys
import types
from itertools import count
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from cosyserve.engines.engine_cache import EngineCache
from cosyserve.errors import InternalFault, ModelError, SettingsError
from cosyserve.host.hardware import SUPPORTED_LIBRARIES
from services.token2wav.engines.onnx_runtime import OnnxEngine
from services.token2wav.engines.shapes import profiles
from services.token2wav.engines.tensorrt import BELOW, OLDEST, TensorRTEngine, tensorrt_library
from services.token2wav.inputs.request import Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from tests.stacks.up_process import TINY3
from tests.unit.token2wav.engines import fake_tensorrt
from tests.unit.token2wav.engines.engines import CPU, fake_trt, settings, trt_backend
from tests.unit.token2wav.engines.fake_tensorrt import record
from tests.unit.token2wav.speaking import TINY, batching, speak, tokens, voice
from tools.model.graphs.execute import on_cuda
from tools.model.graphs.graph import Precision
from tools.model.graphs.tensorrt_plan import PlanError, PlanOptions, Progress, build_plan
from tools.model.verify import main


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trt(monkeypatch)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def pitch_plan(cache: Path) -> Path:
    trt_backend(cache)
    return next(cache.glob("token2wav.pitch-*/pitch.plan"))


@pytest.fixture
def pitch(pitch_plan: Path) -> TensorRTEngine:
    return TensorRTEngine("pitch", pitch_plan, CPU, profiles("pitch", 4))


def samples(audio: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.frombuffer(audio, "<i2") / 32768


@pytest.mark.parametrize(
    ("model", "profile", "apart"),
    # Phases of CosyVoice3 amplify the rounding of mel: 480 turns of its sum in a frame.
    [*((TINY, profile, 2e-3) for profile in Profile), (TINY3, Profile.CONTINUOUS, 2e-2)],
)
async def test_it_speaks_as_torch_does(cache: Path, model: Path, profile: Profile, apart: float) -> None:
    sentence = Sentence(voice(20), seed=7, profile=profile)
    engines_of, plain_of = trt_backend(cache, model=model), load_backend("torch", settings(cache, model=model))
    async with batching(engines_of.decoders) as engines, batching(plain_of.decoders) as plain:
        made, wanted = [samples(await speak(on, sentence, tokens(40))) for on in (engines, plain)]
    assert wanted.std() > 0.05
    assert np.abs(made - wanted).max() < apart


async def test_streamed_is_whole_and_batched_is_alone(cache: Path) -> None:
    async with batching(trt_backend(cache, engine_contexts=2).decoders) as batcher:
        cuts = {
            await speak(batcher, Sentence(voice(20), seed=3, hops=hops), tokens(64), 9) for hops in (Hops(), Hops(100))
        }
        assert len(cuts) == 1
        requests = [(Sentence(voice(20 * i), seed=i), tokens(30, offset=i)) for i in range(4)]
        alone = [await speak(batcher, *request) for request in requests]
        record.clear()
        record.slow = 0.001
        together = await asyncio.gather(*(speak(batcher, *request) for request in requests))
    for one, other in zip(alone, together, strict=True):
        assert np.abs(samples(one) - samples(other)).max() < 1e-3
    assert max(shapes["x"][0] for engine, shapes in record.executions if engine == "estimator") > 2
    assert record.most_at_once == 2, "both slots work at once, and never more"


async def test_an_execution_that_is_refused_ends_its_step_and_no_other(cache: Path) -> None:
    async with batching(trt_backend(cache, engine_contexts=1).decoders) as batcher:
        whole = await speak(batcher, Sentence(voice(0), seed=1), tokens(30))
        record.refusals = (at == 7 for at in count())
        with pytest.raises(InternalFault, match=r"engine (estimator|encoder): the execution was not queued"):
            await speak(batcher, Sentence(voice(0), seed=1), tokens(30))
        assert await speak(batcher, Sentence(voice(0), seed=1), tokens(30)) == whole


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "estimator.plan").write_bytes(b"of another version")
    with pytest.raises(ModelError, match=r"TensorRT 10\.13\.0\.35 cannot read this plan; remove it and build it again"):
        TensorRTEngine("estimator", tmp_path / "estimator.plan", CPU, [])


def test_a_plan_with_other_profiles_is_refused(pitch_plan: Path) -> None:
    for needed, words in (
        (profiles("pitch", 9), r"profile 0 takes mel from .* needed is"),
        (profiles("pitch", 4) * 2, "1 profiles, 2 are needed"),
    ):
        with pytest.raises(ModelError, match=words):
            TensorRTEngine("pitch", pitch_plan, CPU, needed)


def test_shapes_outside_of_the_plan_are_refused_before_the_call(pitch: TensorRTEngine) -> None:
    assert pitch.refusal({"mel": (5, 80, 20)}).startswith("no profile of the plan covers")
    with pytest.raises(InternalFault, match="no profile of the plan covers"):
        pitch.context({"mel": (5, 80, 20)}, 0)


def test_what_tensorrt_says_by_raising_or_by_zero_is_a_fault_that_names_it(pitch: TensorRTEngine) -> None:
    for no_profile, words in (
        (True, r"profile 0 or its shapes were not taken \(Error in set optimization profile"),
        (False, "the scratch memory that these shapes need could not be worked out"),
    ):
        record.no_profile, record.no_scratch = no_profile, not no_profile
        with pytest.raises(InternalFault, match=f"engine pitch: {words}"):
            pitch.context({"mel": (1, 80, 50)}, 0)
    record.clear()
    assert pitch.context({"mel": (1, 80, 50)}, 0).scratch_bytes > 0


def test_only_a_plan_for_several_versions_may_bring_code_for_the_cpu(pitch_plan: Path) -> None:
    record.clear()
    for host_code in (False, True):
        TensorRTEngine("pitch", pitch_plan, CPU, profiles("pitch", 4), host_code=host_code)
    assert record.host_code == [False, True]


@pytest.mark.parametrize("version", ["11.4.0.106", "10.9.0.34"])
def test_a_release_that_has_not_been_run_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_tensorrt, "__version__", version)
    with pytest.raises(
        SettingsError, match=rf"TensorRT {re.escape(version)} is installed, 10\.10 to below 11 can be served"
    ):
        tensorrt_library()


def test_releases_that_are_served_are_those_of_the_doctor() -> None:
    (library,) = (library for library in SUPPORTED_LIBRARIES if library.name == "tensorrt")
    assert (library.oldest, library.below) == (OLDEST, BELOW)


def test_without_the_library_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(SettingsError, match="needs the package tensorrt: pip install tensorrt-cu13"):
        load_backend("tensorrt", settings(cache))
    monkeypatch.setitem(sys.modules, "tensorrt", types.ModuleType("tensorrt"))
    with pytest.raises(SettingsError, match="has no runtime in it"):
        tensorrt_library()


def test_a_library_that_cannot_be_loaded_or_cannot_begin_says_so(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    plain = builtins.__import__

    def refuse(name: str, *given: object) -> types.ModuleType:
        if name == "tensorrt":
            raise OSError("libnvinfer.so.10: cannot open shared object file")
        return plain(name, *given)

    record.driver = False
    (tmp_path / "estimator.plan").write_bytes(b"")
    with pytest.raises(SettingsError, match=r"TensorRT 10\.13\.0\.35 cannot begin here: .*cosyserve doctor --gpu"):
        TensorRTEngine("estimator", tmp_path / "estimator.plan", CPU, [])
    with pytest.raises(PlanError, match="cannot begin here"):
        build_plan(graph(cache, "pitch"), profiles("pitch", 2), PlanOptions())
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SettingsError, match=r"cannot be loaded \(libnvinfer.*pip install tensorrt-cu13"):
        tensorrt_library()


def test_it_needs_a_gpu(cache: Path) -> None:
    with pytest.raises(SettingsError, match="backend tensorrt needs a GPU; device is 'cpu'"):
        load_backend("tensorrt", settings(cache))


def graph(cache: Path, component: str) -> Path:
    from tools.model.export import export

    return export(TINY, EngineCache(cache), Precision.FP32).file(f"{component}.onnx")


def test_building_reports_its_progress_and_keeps_its_measurements(cache: Path, tmp_path: Path) -> None:
    log, timing = io.StringIO(), tmp_path / "timing.cache"
    timing.write_bytes(b"of another GPU")
    options = PlanOptions(timing_cache=timing, compatibility="hardware+version", level=5)
    plan = build_plan(graph(cache, "pitch"), profiles("pitch", 2), options, Progress("pitch", log))
    assert plan.startswith(fake_tensorrt.MAGIC)
    assert (log.getvalue(), timing.read_bytes()) == ("pitch: Building 50%\n", b"measured on the test")
    assert [path.name for path in tmp_path.iterdir()] == ["timing.cache"]


def test_a_plan_is_worth_more_than_its_measurements(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the timing cache cannot be read or written the plan is built all the same."""
    (tmp_path / "timing.cache").mkdir()
    options = PlanOptions(timing_cache=tmp_path / "timing.cache")
    assert build_plan(graph(cache, "pitch"), profiles("pitch", 2), options).startswith(fake_tensorrt.MAGIC)
    assert "what was measured is not kept" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["timing.cache"]


def test_a_build_can_be_stopped_and_a_graph_refused(cache: Path, tmp_path: Path) -> None:
    good, bad = graph(cache, "pitch"), tmp_path / "bad.onnx"
    bad.write_bytes(b"no graph")
    for path, component, progress, words in (
        (good, "pitch", Progress("pitch", io.StringIO(), stop=lambda: True), "built no plan"),
        (bad, "pitch", None, "does not take this graph: no such operator"),
        (good, "filter", None, "the graph's inputs are mel; the profile has"),
    ):
        with pytest.raises(PlanError, match=words):
            build_plan(path, profiles(component, 2), PlanOptions(), progress)


def test_the_published_estimator_has_a_profile_of_its_own() -> None:
    usual, longest = profiles("estimator", 16, masked=False)
    assert "attention" not in usual.most
    assert (usual.most["x"][0], longest.most["x"][0]) == (2, 2)


CUDA = "CUDAExecutionProvider"
on_a_cpu = pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="this wheel has CUDA")


@pytest.fixture(scope="module")
def negative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph y = -x."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "negative", [x], [y])
    path = tmp_path_factory.mktemp("graph") / "graph.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), str(path))
    return path


@on_a_cpu
def test_a_wheel_for_cpus_is_refused(negative: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SettingsError, match=f"has no {CUDA}: pip install onnxruntime-gpu"):
        OnnxEngine("negative", negative, torch.device("cuda"))
    assert main([str(TINY), "--runtime", "cuda"]) == 1
    assert f"has no {CUDA}: pip install onnxruntime-gpu" in capsys.readouterr().err


@on_a_cpu
@pytest.mark.filterwarnings("ignore")
def test_falling_back_to_the_cpu_unasked_is_refused(negative: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, "CPUExecutionProvider"])
    with pytest.raises(SettingsError, match=f"cannot set up its {CUDA}"):
        OnnxEngine("negative", negative, torch.device("cuda"))
    with pytest.raises(SettingsError, match=f"cannot set up its {CUDA}"):
        on_cuda()(onnx.load(str(negative)))
