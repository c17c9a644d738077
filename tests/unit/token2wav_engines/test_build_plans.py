"""`cosyserve model build token2wav` over the stand-in for tensorrt: what it builds, that it goes on where it stopped, what it says else."""

import contextlib
import sys
from pathlib import Path

import pytest
import torch

from cosyserve.engine_cache import EngineCache
from services.token2wav import trt
from services.token2wav.backend import load_backend
from services.token2wav.engines import backend
from services.token2wav.request import Profile, Sentence
from tests.unit.token2wav.speaking import GOLDEN, batching, speak, tokens, torch_backend, voice
from tests.unit.token2wav_engines.engines import CPU, MACHINE, fake_trt, settings
from tools.model import build_plans
from tools.model.plan import PlanError


class Gpu:
    """A device that says it is a GPU; what is asked of torch goes to the CPU."""

    type = "cuda"
    index = 0


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trt(monkeypatch)
    for module in (build_plans, trt):
        monkeypatch.setattr(module, "device_of", lambda name: Gpu())
        monkeypatch.setattr(module, "machine_facts", lambda device, version: MACHINE | {"tensorrt": version})
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


def arguments(cache: Path, *more: str) -> list[str]:
    return [str(GOLDEN), "--engines", str(cache), "--precision", "fp32", "--streams", "4", *more]


@pytest.mark.usefixtures("_gpu")
async def test_what_was_built_is_what_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_plans.main(arguments(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split()[0]).name for line in lines] == ["encoder.plan", "estimator.plan", "pitch.plan", "filter.plan"]
    built = {entry.key.component: entry.built for entry in EngineCache(tmp_path).entries()}
    assert build_plans.main(arguments(tmp_path)) == 0
    assert {entry.key.component: entry.built for entry in EngineCache(tmp_path).entries()} == built
    assemble = backend.assemble
    monkeypatch.setattr(trt, "assemble", lambda model, given, device, *rest: assemble(model, given, CPU, *rest))
    monkeypatch.setattr(trt.TensorRTEngine, "__init__", _on_cpu(trt.TensorRTEngine.__init__))
    served = load_backend("tensorrt", settings(tmp_path, device="cuda"))
    assert served.identity.backend == "tensorrt"
    assert "driver none" in served.identity.precision
    sentence = Sentence(voice(20), seed=2, profile=Profile.CONTINUOUS)
    async with batching(served.decoders) as engines, batching(torch_backend().decoders) as plain:
        assert len(await speak(engines, sentence, tokens(30))) == len(await speak(plain, sentence, tokens(30)))


def _on_cpu(plain: object) -> object:
    def init(self: object, name: str, path: Path, device: object, built: object) -> None:
        plain(self, name, path, CPU, built)  # type: ignore[operator]

    return init


@pytest.mark.usefixtures("_gpu")
def test_a_build_that_failed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, asked = build_plans.build_plan, []

    def failing(graph: Path, *rest: object) -> bytes:
        asked.append(graph.stem)
        if graph.stem == "pitch" and asked.count("pitch") == 1:
            raise PlanError("out of memory")
        return plain(graph, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(build_plans, "build_plan", failing)
    assert build_plans.main(arguments(tmp_path)) == 1
    assert "cosyserve: out of memory" in capsys.readouterr().err
    assert build_plans.main(arguments(tmp_path)) == 0
    assert asked == ["encoder", "estimator", "pitch", "pitch", "filter"]


@pytest.mark.usefixtures("_gpu")
def test_plans_of_another_driver_are_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_plans.main(arguments(tmp_path)) == 0
    monkeypatch.setattr(trt, "machine_facts", lambda device, version: MACHINE | {"driver": "580.65.06"})
    with pytest.raises(backend.ModelError) as refused:
        load_backend("tensorrt", settings(tmp_path, device="cuda"))
    assert "driver is 580.65.06, it was built for none" in str(refused.value)
    assert str(refused.value).endswith(f"make it with: cosyserve model build {GOLDEN} --precision fp32 --streams 4")


@pytest.mark.usefixtures("_gpu")
def test_plans_for_other_machines_are_found_there_and_only_by_those_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_plans.main(arguments(tmp_path, "--compatibility", "hardware+version")) == 0
    elsewhere = {"gpu": "another", "compute_capability": "8.0", "tensorrt": "10.99.1", "driver": "580.65.06"}
    monkeypatch.setattr(trt, "machine_facts", lambda device, version: elsewhere)
    with pytest.raises(backend.ModelError, match="compatibility is none, it was built for hardware"):
        load_backend("tensorrt", settings(tmp_path, device="cuda"))
    taken = []
    monkeypatch.setattr(trt, "TensorRTEngine", lambda component, *_: taken.append(component) or pytest.fail("enough"))
    with pytest.raises(pytest.fail.Exception):
        load_backend("tensorrt", settings(tmp_path, device="cuda", engine_compatibility="hardware+version"))
    assert taken == ["encoder"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--streams", "0"), "--streams is 0; 1 to 64 is allowed"),
        (("--workspace", "0"), "--workspace is 0; 0.1 to 1024 GiB is allowed"),
        (("--published", "x.onnx", "--precision", "fp16"), "--published is a float32 file"),
    ],
)
def test_wrong_arguments(tmp_path: Path, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_plans.main(arguments(tmp_path, *more))
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_without_tensorrt_or_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert build_plans.main(arguments(tmp_path)) == 1
    assert "needs the package tensorrt: pip install" in capsys.readouterr().err
    fake_trt(monkeypatch)
    assert build_plans.main(arguments(tmp_path, "--device", "cpu")) == 1
    assert "plans are built on the GPU that runs them; device is cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
