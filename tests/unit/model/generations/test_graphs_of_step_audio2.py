"""The exported graphs of Step-Audio2's flow, which take and hand on its state, against the torch
path on the CPU.
"""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cosyserve.engines.engine_cache import COMPONENTS
from cosyserve.errors import ModelError
from tests.stacks.up_process import STEP_AUDIO2
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.graph_comparison import compare, first_difference, tolerance, without_padding
from tools.model.export import graphs
from tools.model.graphs.execute import by_onnx_runtime, on_cpu
from tools.model.graphs.graph import Precision


@cache
def exported() -> dict[str, onnx.ModelProto]:
    return graphs(STEP_AUDIO2, Precision.FP32)


@cache
def reference() -> Reference:
    return Reference(STEP_AUDIO2)


@cache
def cases() -> list[Case]:
    return list(reference().cases())


def batch(component: str, output: str) -> Case:
    """Three streams with pasts of 62, 0 and 137 tokens."""
    (found,) = [
        case
        for case in cases()
        if case.component == component and case.name.startswith("3 x") and case.output == output
    ]
    return found


def test_every_case_in_float32() -> None:
    assert tuple(exported()) == COMPONENTS
    report, lines = compare(exported(), cases(), reference(), on_cpu(Precision.FP32), Precision.FP32)
    assert (report.ok, lines) == (True, []), report.as_table()
    assert max(row.error for row in report.rows if not row.array.startswith("pitch")) < 2e-5
    outputs = {case.output for case in cases() if case.component in ("encoder", "estimator")}
    assert outputs == {value.name for part in ("encoder", "estimator") for value in exported()[part].graph.output}


def test_no_batch_is_wider_than_it_may_be() -> None:
    assert {case.inputs["tail"].shape[0] for case in reference().cases(most=1) if "tail" in case.inputs} == {1, 2}


def test_what_lies_in_front_of_a_past_is_not_seen() -> None:
    """Keys that the mask leaves out may hold anything."""
    case = batch("estimator", "velocity")
    changed = {name: array.copy() for name, array in case.inputs.items()}
    keys = changed["seen"].shape[1] - changed["inputs"].shape[1]
    hidden = ~changed["seen"][:, :keys]
    assert hidden.any()
    for row, where in enumerate(hidden):
        changed["past"][:, row, :, where] = 7.0
    execute = by_onnx_runtime(exported()["estimator"])
    assert np.array_equal(execute(changed)["velocity"], execute(case.inputs)["velocity"])


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
def test_narrow_products_stay_near(precision: Precision) -> None:
    case = batch("estimator", "velocity")
    made = on_cpu(precision)["estimator"](graphs(STEP_AUDIO2, precision)["estimator"])(case.inputs)
    error = np.abs(without_padding(made["velocity"], case.wanted.shape) - case.wanted).max()
    # Not equal either: the narrow type is really there.
    assert 1e-4 < error <= tolerance("estimator", precision) * np.abs(case.wanted).max()


@pytest.mark.parametrize(
    ("component", "weight", "layer"),
    [
        ("estimator", "blocks.1.conv.block.6.weight", "blocks.1"),
        ("estimator", "blocks.2.attn.k_norm.bias", "blocks.2"),
        ("encoder", "encoder.up_encoders.1.self_attn.linear_pos.weight", "up_encoders.1"),
        ("encoder", "encoder.pre_lookahead_layer.conv2.weight", "pre_lookahead"),
    ],
)
def test_a_wrong_weight_is_named_by_its_layer(component: str, weight: str, layer: str) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(exported()[component])
    (tensor,) = [tensor for tensor in wrong.graph.initializer if tensor.name == weight]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(0.05), weight))
    case = batch(component, "velocity" if component == "estimator" else "mu")
    difference = first_difference(wrong, reference(), case, by_onnx_runtime, tolerance(component, Precision.FP32))
    assert difference.startswith(f"layer {layer} is the first that differs, by ")


def test_what_this_flow_has_not_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="Step-Audio2 has no scales for 8-bit products; choose another --precision"):
        graphs(STEP_AUDIO2, Precision.FP8)
    with pytest.raises(ModelError, match="no estimator is published with this flow; leave --published out"):
        graphs(STEP_AUDIO2, Precision.FP32, Path("any.onnx"))
