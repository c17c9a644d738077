"""`cosyserve model build token2wav` over the fake tensorrt: what it builds, that it resumes where
it stopped, and its messages.
"""

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cosyserve.engines.engine_cache import COMPONENTS, EngineCache
from services.token2wav.decoders.backend import Backend
from services.token2wav.engines import backend, tensorrt
from services.token2wav.engines.artifacts import PUBLISHED_FILE
from services.token2wav.inputs.request import Sentence
from services.token2wav.loading import load_backend
from tests.unit.token2wav.engines import fake_tensorrt
from tests.unit.token2wav.engines.engines import CPU, MACHINE, fake_trt, plan_arguments, pretend_gpu, settings
from tests.unit.token2wav.speaking import TINY, batching, speak, tokens, voice
from tools.model import build_plans
from tools.model.export import estimator_weights, flow_weights
from tools.model.export import main as export_main
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.graph import write
from tools.model.graphs.tensorrt_plan import PlanError
from tools.model.prune import Inventory, judge_engines


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, build_plans, tensorrt)


def built(cache: Path, *more: str) -> int:
    """Status of the command."""
    status: int = build_plans.main(plan_arguments(cache, *more))
    return status


def served_from(cache: Path, **changed: Any) -> Backend:
    return load_backend("tensorrt", settings(cache, device="cuda", **changed))


@pytest.mark.usefixtures("_gpu")
async def test_what_was_built_is_what_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split()[0]).name for line in lines] == [f"{component}.plan" for component in COMPONENTS]
    entries = list(EngineCache(tmp_path).entries())
    assert built(tmp_path) == 0
    assert list(EngineCache(tmp_path).entries()) == entries
    on_cpu(monkeypatch)
    served = served_from(tmp_path)
    assert (served.identity.backend, "driver none" in served.identity.precision) == ("tensorrt", True)
    async with batching(served.decoders) as engines:
        assert len(await speak(engines, Sentence(voice(20), seed=2), tokens(30))) == 30 * 1920


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
    assert built(tmp_path) == 1
    assert "cosyserve: out of memory" in capsys.readouterr().err
    assert built(tmp_path) == 0
    assert asked == ["encoder", "estimator", "pitch", "pitch", "filter"]


@pytest.mark.usefixtures("_gpu")
def test_a_ctrl_c_is_heard_while_tensorrt_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TensorRT builds in a separate thread until its monitor stops it, and nothing of the plan
    remains.
    """
    fake_tensorrt.record.steps = 10_000_000
    fake_tensorrt.record.first_step = lambda: os.kill(os.getpid(), signal.SIGINT)
    assert built(tmp_path) == 130
    assert capsys.readouterr().err.endswith("cosyserve: stopped; the next run goes on from here\n")
    assert fake_tensorrt.record.stopped == 1
    assert [path.name.split("-")[0] for path in tmp_path.iterdir() if path.is_dir()] == ["token2wav.graphs"]
    fake_tensorrt.record.clear()
    assert built(tmp_path) == 0


@pytest.mark.usefixtures("_gpu")
def test_plans_of_another_driver_are_refused_with_the_reason_and_the_command_that_builds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built(tmp_path) == 0
    elsewhere = MACHINE | {"driver": "580.65.06", "tensorrt": fake_tensorrt.__version__}
    for module in (build_plans, tensorrt):
        monkeypatch.setattr(module, "machine_facts", lambda device, version: elsewhere)
    with pytest.raises(backend.ModelError) as refused:
        served_from(tmp_path)
    why, _, command = str(refused.value).partition("; make it with: ")
    assert "driver is 580.65.06, it was built for none" in why
    assert command == f"cosyserve model build token2wav {TINY} --precision fp32 --engines {tmp_path} --streams 4"
    assert build_plans.main(shlex.split(command)[4:]) == 0
    on_cpu(monkeypatch)
    served_from(tmp_path).release()


def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that were built for the fake GPU run on the CPU."""
    assemble, plain = backend.assemble, tensorrt.TensorRTEngine
    monkeypatch.setattr(tensorrt, "assemble", lambda model, given, device, *rest: assemble(model, given, CPU, *rest))
    monkeypatch.setattr(
        tensorrt, "TensorRTEngine", lambda name, path, device, *rest, **how: plain(name, path, CPU, *rest, **how)
    )


@pytest.mark.usefixtures("_gpu")
def test_the_published_estimators_plans_are_those_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the file identifies the published estimator: another file is another engine, and every
    command in an error message names it.
    """
    model = tmp_path / "a model"
    model.mkdir()
    for path in TINY.iterdir():
        (model / path.name).symlink_to(path)
    given = settings(
        tmp_path / "engines", model=model, device="cuda", engine_estimator="published", engine_compatibility="version"
    )
    with pytest.raises(backend.ModelError) as missing:
        load_backend("tensorrt", given)
    assert str(missing.value).endswith(f"cosyserve model download '{model}' --with-published-onnx")
    on_cpu(monkeypatch)
    weights, config = flow_weights(TINY)
    for note in ("one", "another"):
        write(
            EstimatorGraph(estimator_weights(weights), config, masked=False).model({"note": note}),
            model / PUBLISHED_FILE,
        )
        for step, main in (("export", export_main), ("build token2wav", build_plans.main)):
            with pytest.raises(backend.ModelError) as refused:
                load_backend("tensorrt", given)
            words = shlex.split(str(refused.value).partition("; make it with: ")[2])
            assert " ".join(words).startswith(
                f"cosyserve model {step} {model} --precision fp32 --published {model / PUBLISHED_FILE}"
            )
            assert main(words[3 + step.count(" ") :]) == 0
        served = load_backend("tensorrt", given)
        assert "published " in served.identity.precision
        served.release()
    components = [entry.key.component for entry in EngineCache(tmp_path / "engines").entries()]
    assert components.count("token2wav.estimator") == 2


@pytest.mark.usefixtures("_gpu")
def test_what_is_served_is_held_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert built(tmp_path) == 0
    on_cpu(monkeypatch)

    def stays_held() -> set[tuple[bool, bool]]:
        """Of the entries, which no model needs."""
        verdicts = judge_engines(EngineCache(tmp_path), Inventory(models=frozenset()))
        return {(verdict.reason is None, verdict.held) for verdict in verdicts}

    served = served_from(tmp_path)
    assert stays_held() == {(True, True)}
    served.release()
    assert stays_held() == {(False, False)}
    monkeypatch.setattr(tensorrt, "TensorRTEngine", lambda *given, **how: pytest.fail("a plan that cannot be loaded"))
    with pytest.raises(pytest.fail.Exception):
        served_from(tmp_path)
    assert stays_held() == {(False, False)}, "a rung that was stepped over holds nothing"


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("precision", "words"),
    [
        ("bf16", "bf16 needs compute capability 8.0 or later, a test has 7.5"),
        ("fp8", "fp8 needs compute capability 8.9 or later"),
    ],
)
def test_a_type_that_the_gpu_lacks_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], precision: str, words: str
) -> None:
    monkeypatch.setattr(build_plans, "machine_facts", lambda device, version: MACHINE | {"compute_capability": "7.5"})
    assert built(tmp_path, "--precision", precision) == 1
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_gpu")
def test_plans_for_other_machines_are_found_there_and_only_by_those_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built(tmp_path, "--compatibility", "hardware+version") == 0
    elsewhere = {"gpu": "another", "compute_capability": "8.0", "tensorrt": "10.99.1", "driver": "580.65.06"}
    monkeypatch.setattr(tensorrt, "machine_facts", lambda device, version: elsewhere)
    with pytest.raises(backend.ModelError, match="compatibility is none, it was built for hardware"):
        served_from(tmp_path)
    taken = []
    monkeypatch.setattr(
        tensorrt, "TensorRTEngine", lambda component, *_, **how: taken.append(component) or pytest.fail("enough")
    )
    with pytest.raises(pytest.fail.Exception):
        served_from(tmp_path, engine_compatibility="hardware+version")
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
    assert built(tmp_path, *more) == 2
    assert words in capsys.readouterr().err


def test_without_tensorrt_or_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert built(tmp_path) == 1
    assert "needs the package tensorrt: pip install" in capsys.readouterr().err
    fake_trt(monkeypatch)
    assert built(tmp_path, "--device", "cpu") == 1
    assert "plans are built on the GPU that runs them; device is cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
