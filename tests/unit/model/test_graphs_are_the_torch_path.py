"""The exported graphs against the torch path, on the CPU: every case in float32, and what the other
precisions change.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cosyserve.errors import ModelError
from tests.unit.model.steps import TINY, ended
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.graph_comparison import compare, first_difference, tolerance
from tools.model.export import estimator_weights, flow_weights, graphs, main
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.execute import by_onnx_runtime, on_cpu
from tools.model.graphs.graph import Precision, layers_of
from tools.model.graphs.velocity_graph import read_published


@cache
def exported() -> dict[str, onnx.ModelProto]:
    return graphs(TINY, Precision.FP32)


@cache
def reference() -> Reference:
    return Reference(TINY)


@cache
def cases() -> list[Case]:
    return list(reference().cases())


def third(component: str) -> Case:
    return [case for case in cases() if case.component == component][2]


def test_every_case_in_float32() -> None:
    report, lines = compare(exported(), reference().cases(), reference(), on_cpu(Precision.FP32), Precision.FP32)
    assert (report.ok, lines) == (True, []), report.as_table()
    rows = [row.array for row in report.rows]
    assert sum("streaming" in row for row in rows) >= 9
    assert {row.split(":")[0] for row in rows} == {"encoder", "estimator", "pitch", "filter"}


NARROW_CASES = ("estimator.npz/out_streaming", "2 x 2 frames", "6 x 114 frames")


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16, Precision.FP8])
def test_narrow_products_stay_near(precision: Precision) -> None:
    execute = on_cpu(precision)["estimator"](graphs(TINY, precision)["estimator"])
    checked = 0
    for case in cases():
        if case.component == "estimator" and case.name in NARROW_CASES:
            error = np.abs(execute(case.inputs)["estimator_out"] - case.wanted).max()
            # Not equal either: the narrow type is really there.
            assert 1e-4 < error <= tolerance("estimator", precision) * np.abs(case.wanted).max(), case.name
            checked += 1
    assert checked == len(NARROW_CASES)


@pytest.mark.parametrize(
    ("component", "weight", "layer"),
    [
        ("estimator", "mid_blocks.1.1.0.ff.net.2.weight", "mid_blocks.1.1.0"),
        ("estimator", "time_mlp.linear_1.bias", "time_mlp"),
        ("estimator", "up_blocks.0.0.res_conv.weight", "up_blocks.0.0"),
        ("encoder", "encoder.up_encoders.2.self_attn.linear_pos.weight", "up_encoders.2"),
        ("encoder", "encoder.pre_lookahead_layer.conv2.weight", "pre_lookahead"),
        ("filter", "resblocks.4.convs1.1.weight", "resblocks.4"),
        ("filter", "conv_post.bias", "conv_post"),
        ("pitch", "f0_predictor.condnet.4.weight", "f0_predictor.condnet.4"),
    ],
)
def test_a_wrong_weight_is_named_by_its_layer(component: str, weight: str, layer: str) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(exported()[component])
    (tensor,) = [tensor for tensor in wrong.graph.initializer if tensor.name == weight]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(0.05), weight))
    case = third(component)
    assert np.abs(by_onnx_runtime(wrong)(case.inputs)[case.output] - case.wanted).max() > tolerance(
        component, Precision.FP32
    )
    difference = first_difference(wrong, reference(), case, by_onnx_runtime, tolerance(component, Precision.FP32))
    assert difference.startswith(f"layer {layer} is the first that differs, by ")


def test_no_batch_is_wider_than_it_may_be() -> None:
    widest = {
        case.inputs["mel" if case.component in ("pitch", "filter") else "mask"].shape[0]
        for case in reference().cases(most=1)
    }
    assert widest == {1, 2}, "a stream is two rows of the estimator"


def test_layers_agree_where_nothing_is_wrong() -> None:
    for component, model in exported().items():
        said = first_difference(model, reference(), third(component), by_onnx_runtime, 2e-3)
        assert said.startswith("every layer up to ")


def test_the_same_weights_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(TINY), "--engines", str(tmp_path / "a"), "--out", str(tmp_path / "one")]) == 0
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    status, _, errors = ended("export", str(TINY), "--engines", str(tmp_path / "b"), "--out", str(tmp_path / "two"))
    assert status == 0, errors
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["encoder.onnx", "estimator.onnx", "filter.onnx", "pitch.onnx"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_files_say_what_they_are() -> None:
    for component, model in exported().items():
        onnx.checker.check_model(model, full_check=True)
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert model.graph.name == component
        assert (metadata["precision"], len(metadata["model_hash"])) == ("fp32", 16)
        values = {output for node in model.graph.node for output in node.output}
        assert {layer.value for layer in layers_of(model)} <= values
        assert layers_of(model)


ANSWERED = {
    "TRT-SHAPE-PROFILE-MISSING",  # lengths are free: plans are built with profiles
    "TRT-DTYPE-INT64-WEIGHTS",  # shapes and limits of slices: ONNX has no other type for them
    "TRT-DTYPE-BF16",  # asked for
    # it has no opinion; TensorRT's own list has Softplus, Mish's part, and Erf
    "TRT-OP-UNCLASSIFIED",
}


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP8])
def test_trtcheck_finds_nothing_that_is_not_answered(tmp_path: Path, precision: Precision) -> None:
    models = exported() if precision is Precision.FP32 else {"estimator": graphs(TINY, precision)["estimator"]}
    for component, model in models.items():
        path, report = tmp_path / f"{component}.onnx", tmp_path / f"{component}.json"
        path.write_bytes(model.SerializeToString())
        command = [sys.executable, "-m", "trtcheck", "--format", "json", "--output", str(report), str(path)]
        subprocess.run(command, check=False, capture_output=True, timeout=120)
        summary = json.loads(report.read_text())
        assert summary["critical_count"] == 0
        (findings,) = [value for value in summary.values() if isinstance(value, list)]
        assert {finding["rule_id"] for finding in findings} <= ANSWERED, findings


def test_the_published_form_is_taken_and_no_other(tmp_path: Path) -> None:
    """Fixed batch of 2, no attention mask."""
    (weights, config), ours = flow_weights(TINY), exported()["estimator"].SerializeToString()
    theirs = EstimatorGraph(estimator_weights(weights), config, masked=False).model({}).SerializeToString()
    for name, content in (("theirs", theirs), ("ours", ours), ("torn", ours[:1000])):
        (tmp_path / f"{name}.onnx").write_bytes(content)
    models = exported() | {"estimator": read_published(tmp_path / "theirs.onnx")}
    report, _ = compare(models, reference().cases(masked=False), reference(), on_cpu(Precision.FP32), Precision.FP32)
    assert report.ok, report.as_table()
    for name, words in (("ours", "inputs are "), ("torn", "no valid ONNX file"), ("none", "no such file")):
        with pytest.raises(ModelError, match=words):
            read_published(tmp_path / f"{name}.onnx")
