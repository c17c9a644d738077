"""`cosyserve model build token2wav` over the fake tensorrt: what it builds, that it resumes where
it stopped, and its messages; and `cosyserve model verify --runtime tensorrt`, which compares the
plans that are served.
"""

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from cosyserve.engines.engine_cache import EngineCache
from services.token2wav.engines import backend, tensorrt
from services.token2wav.engines.artifacts import PUBLISHED_FILE
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.loading import load_backend
from tests.unit.token2wav.engines import fake_tensorrt
from tests.unit.token2wav.engines.engines import CPU, MACHINE, fake_trt, settings
from tests.unit.token2wav.speaking import GOLDEN, batching, speak, tokens, torch_backend, voice
from tools.model import build_plans, verify, verify_token2wav
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.export import estimator_weights, flow_weights
from tools.model.export import main as export_main
from tools.model.graphs.estimator_graph import estimator_graph
from tools.model.graphs.graph import write
from tools.model.graphs.tensorrt_plan import PlanError, PlanOptions
from tools.model.prune import Inventory, judge_engines


class FewCases(Reference):
    """One question to each graph."""

    def cases(self, *, masked: bool = True, most: int = 5) -> Iterator[Case]:
        seen = set[str]()
        for case in super().cases(masked=masked, most=most):
            if case.component not in seen and "2 x 2" not in case.name:
                seen.add(case.component)
                yield case


class Gpu:
    """A device that says it is a GPU; what is asked of torch goes to the CPU."""

    type = "cuda"
    index = 0


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trt(monkeypatch)
    for module in (build_plans, tensorrt, verify_token2wav):
        monkeypatch.setattr(module, "device_of", lambda name: Gpu())
        monkeypatch.setattr(module, "machine_facts", lambda device, version: MACHINE | {"tensorrt": version})
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(
        verify_token2wav, "Slots", lambda device, count, plain=verify_token2wav.Slots: plain(CPU, count)
    )
    monkeypatch.setattr(verify_token2wav, "Reference", FewCases)
    assert tensorrt.TensorRTEngine is verify_token2wav.TensorRTEngine


def arguments(cache: Path, *more: str) -> list[str]:
    return [str(GOLDEN), "--engines", str(cache), "--precision", "fp32", "--streams", "4", *more]


@pytest.mark.usefixtures("_gpu")
async def test_what_was_built_is_what_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_plans.main(arguments(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split()[0]).name for line in lines] == [
        "encoder.plan",
        "estimator.plan",
        "pitch.plan",
        "filter.plan",
    ]
    built = {entry.key.component: entry.built for entry in EngineCache(tmp_path).entries()}
    assert build_plans.main(arguments(tmp_path)) == 0
    assert {entry.key.component: entry.built for entry in EngineCache(tmp_path).entries()} == built
    on_cpu(monkeypatch)
    served = load_backend("tensorrt", settings(tmp_path, device="cuda"))
    assert served.identity.backend == "tensorrt"
    assert "driver none" in served.identity.precision
    sentence = Sentence(voice(20), seed=2, profile=Profile.CONTINUOUS)
    async with batching(served.decoders) as engines, batching(torch_backend().decoders) as plain:
        assert len(await speak(engines, sentence, tokens(30))) == len(await speak(plain, sentence, tokens(30)))


def _on_cpu(plain: object) -> object:
    def init(self: object, name: str, path: Path, device: object, built: object, *, host_code: bool) -> None:
        plain(self, name, path, CPU, built, host_code=host_code)  # type: ignore[operator]

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
def test_a_ctrl_c_is_heard_while_tensorrt_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TensorRT builds in a separate thread until its monitor stops it, and nothing of the plan
    remains.
    """
    fake_tensorrt.record.steps = 10_000_000
    fake_tensorrt.record.first_step = lambda: os.kill(os.getpid(), signal.SIGINT)
    assert build_plans.main(arguments(tmp_path)) == 130
    assert capsys.readouterr().err.endswith("cosyserve: stopped; the next run goes on from here\n")
    assert fake_tensorrt.record.stopped == 1
    assert [path.name.split("-")[0] for path in tmp_path.iterdir() if path.is_dir()] == ["token2wav.graphs"]
    fake_tensorrt.record.clear()
    assert build_plans.main(arguments(tmp_path)) == 0


@pytest.mark.usefixtures("_gpu")
def test_plans_of_another_driver_are_refused_with_the_reason_and_the_command_that_builds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_plans.main(arguments(tmp_path)) == 0
    elsewhere = MACHINE | {"driver": "580.65.06", "tensorrt": fake_tensorrt.__version__}
    for module in (build_plans, tensorrt):
        monkeypatch.setattr(module, "machine_facts", lambda device, version: elsewhere)
    given = settings(tmp_path, device="cuda")
    with pytest.raises(backend.ModelError) as refused:
        load_backend("tensorrt", given)
    why, _, command = str(refused.value).partition("; make it with: ")
    assert "driver is 580.65.06, it was built for none" in why
    assert command == f"cosyserve model build token2wav {GOLDEN} --precision fp32 --engines {tmp_path} --streams 4"
    assert build_plans.main(shlex.split(command)[4:]) == 0
    on_cpu(monkeypatch)
    served = load_backend("tensorrt", given)
    served.release()


def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that were built for the fake GPU run on the CPU."""
    assemble = backend.assemble
    monkeypatch.setattr(tensorrt, "assemble", lambda model, given, device, *rest: assemble(model, given, CPU, *rest))
    monkeypatch.setattr(tensorrt.TensorRTEngine, "__init__", _on_cpu(tensorrt.TensorRTEngine.__init__))


@pytest.mark.usefixtures("_gpu")
def test_the_published_estimators_plans_are_those_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the file identifies the published estimator: another file is another engine, and every
    command in an error message names it.
    """
    model = tmp_path / "a model"
    model.mkdir()
    for path in GOLDEN.iterdir():
        (model / path.name).symlink_to(path)
    given = settings(
        tmp_path / "engines", model=model, device="cuda", engine_estimator="published", engine_compatibility="version"
    )
    with pytest.raises(backend.ModelError) as missing:
        load_backend("tensorrt", given)
    assert str(missing.value).endswith(f"cosyserve model download '{model}' --with-published-onnx")
    on_cpu(monkeypatch)
    weights, config = flow_weights(GOLDEN)
    for note in ("one", "another"):
        write(
            estimator_graph(estimator_weights(weights), config, masked=False).model({"note": note}),
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
    assert (
        len(
            [
                entry
                for entry in EngineCache(tmp_path / "engines").entries()
                if entry.key.component == "token2wav.estimator"
            ]
        )
        == 2
    )


@pytest.mark.usefixtures("_gpu")
def test_what_is_served_is_held_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_plans.main(arguments(tmp_path)) == 0
    on_cpu(monkeypatch)
    nothing = Inventory(models=frozenset())
    served = load_backend("tensorrt", settings(tmp_path, device="cuda"))
    assert [(verdict.reason, verdict.held) for verdict in judge_engines(EngineCache(tmp_path), nothing)] == [
        (None, True)
    ] * 5
    served.release()
    assert not any(verdict.held for verdict in judge_engines(EngineCache(tmp_path), nothing))
    monkeypatch.setattr(tensorrt, "TensorRTEngine", lambda *given, **how: pytest.fail("a plan that cannot be loaded"))
    with pytest.raises(pytest.fail.Exception):
        load_backend("tensorrt", settings(tmp_path, device="cuda"))
    assert not any(verdict.held for verdict in judge_engines(EngineCache(tmp_path), nothing)), (
        "a rung that was stepped over holds nothing"
    )


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
    assert build_plans.main(arguments(tmp_path, "--precision", precision)) == 1
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_gpu")
def test_plans_for_other_machines_are_found_there_and_only_by_those_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_plans.main(arguments(tmp_path, "--compatibility", "hardware+version")) == 0
    elsewhere = {"gpu": "another", "compute_capability": "8.0", "tensorrt": "10.99.1", "driver": "580.65.06"}
    monkeypatch.setattr(tensorrt, "machine_facts", lambda device, version: elsewhere)
    with pytest.raises(backend.ModelError, match="compatibility is none, it was built for hardware"):
        load_backend("tensorrt", settings(tmp_path, device="cuda"))
    taken = []
    monkeypatch.setattr(
        tensorrt, "TensorRTEngine", lambda component, *_, **how: taken.append(component) or pytest.fail("enough")
    )
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
    assert build_plans.main(arguments(tmp_path, *more)) == 2
    assert words in capsys.readouterr().err


def test_without_tensorrt_or_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert build_plans.main(arguments(tmp_path)) == 1
    assert "needs the package tensorrt: pip install" in capsys.readouterr().err
    fake_trt(monkeypatch)
    assert build_plans.main(arguments(tmp_path, "--device", "cpu")) == 1
    assert "plans are built on the GPU that runs them; device is cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_gpu")
def test_the_cached_plans_are_compared_and_missing_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = arguments(tmp_path, "--runtime", "tensorrt", "--json")
    assert verify.main(wanted) == 1
    report = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no encoder plan for this model and machine; make it with: cosyserve model build token2wav" in report
    assert build_plans.main(shlex.split(report.partition("make it with: ")[2])[4:]) == 0
    capsys.readouterr()
    assert verify.main(wanted) == 0
    out, report = capsys.readouterr()
    assert [row["array"].split(":")[0] for row in json.loads(out)["arrays"]] == [
        "encoder",
        "estimator",
        "pitch",
        "filter",
    ]
    plans = [line.partition(": ")[2] for line in report.splitlines() if line.endswith(".plan")]
    assert sorted(plans) == sorted(str(path) for path in tmp_path.glob("*/*.plan"))


@pytest.mark.usefixtures("_gpu")
def test_a_plan_that_says_something_else_is_found_and_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault is in the plan, not in the graph: running its layers separately locates it."""
    bias = "down_blocks.0.1.1.ff.net.2.bias"

    def wrong(graph: Path, profiles: object, options: PlanOptions, *rest: object) -> bytes:
        model = onnx.load(str(graph))
        for tensor in model.graph.initializer:
            if tensor.name == bias:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(0.1), bias))
        changed = tmp_path / f"changed-{graph.stem}.onnx"
        onnx.save(model, changed)
        return plain(changed, profiles, options, *rest)  # type: ignore[arg-type]

    plain = build_plans.build_plan
    monkeypatch.setattr(build_plans, "build_plan", wrong)
    monkeypatch.setattr("tools.model.graphs.execute.build_plan", wrong)
    assert build_plans.main(arguments(tmp_path)) == 0
    capsys.readouterr()
    assert verify.main(arguments(tmp_path, "--runtime", "tensorrt", "--json")) == 1
    report = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in report["arrays"]] == ["ok", "FAIL", "ok", "ok"]
    assert [line.partition(", by")[0] for line in report["first_differences"]] == [
        "estimator: layer down_blocks.0.1.1 is the first that differs"
    ]
