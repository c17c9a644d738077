"""`cosyserve model verify --runtime tensorrt` compares the plans that are served, over the fake
tensorrt.
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cosyserve.engines.engine_cache import COMPONENTS
from services.token2wav.engines import tensorrt
from tests.stacks.up_process import STEP_AUDIO2, TINY, TINY3
from tests.unit.token2wav.engines.engines import CPU, plan_arguments, pretend_gpu
from tools.model import build_plans, verify, verify_token2wav
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.graphs.tensorrt_plan import PlanOptions


class FewCases(Reference):
    """One question to each graph."""

    def cases(self, *, masked: bool = True, most: int = 5) -> Iterator[Case]:
        seen = set[str]()
        for case in super().cases(masked=masked, most=most):
            if case.component not in seen and "2 x 2" not in case.name:
                seen.add(case.component)
                yield case


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, build_plans, verify_token2wav)
    monkeypatch.setattr(
        verify_token2wav, "Slots", lambda device, count, plain=verify_token2wav.Slots: plain(CPU, count)
    )
    monkeypatch.setattr(verify_token2wav, "Reference", FewCases)
    assert tensorrt.TensorRTEngine is verify_token2wav.TensorRTEngine


@pytest.mark.parametrize("model", [TINY, TINY3, STEP_AUDIO2], ids=["tiny", "tiny3", "step-audio2"])
def test_the_cached_plans_are_compared_and_missing_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    wanted = plan_arguments(tmp_path, "--runtime", "tensorrt", "--json", model=model)
    assert verify.main(wanted) == 1
    report = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no encoder plan for this model and machine; make it with: cosyserve model build token2wav" in report
    assert build_plans.main(shlex.split(report.partition("make it with: ")[2])[4:]) == 0
    capsys.readouterr()
    assert verify.main(wanted) == 0
    out, report = capsys.readouterr()
    assert [row["array"].split(":")[0] for row in json.loads(out)["arrays"]] == list(COMPONENTS)
    plans = [line.partition(": ")[2] for line in report.splitlines() if line.endswith(".plan")]
    assert sorted(plans) == sorted(str(path) for path in tmp_path.glob("*/*.plan"))


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
    assert build_plans.main(plan_arguments(tmp_path)) == 0
    capsys.readouterr()
    assert verify.main(plan_arguments(tmp_path, "--runtime", "tensorrt", "--json")) == 1
    report = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in report["arrays"]] == ["ok", "FAIL", "ok", "ok"]
    assert [line.partition(", by")[0] for line in report["first_differences"]] == [
        "estimator: layer down_blocks.0.1.1 is the first that differs"
    ]
