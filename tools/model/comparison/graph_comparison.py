"""Graphs and engines against the torch path, case by case, and the first layer that differs where
one does.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.graph_comparison import heard_layers
from tools.model.graphs.execute import Execute, Executor
from tools.model.graphs.graph import Array, Precision, layers_of
from tools.verify.report import Report

TOLERANCES = {Precision.FP32: 2e-5, Precision.FP16: 1e-2, Precision.BF16: 8e-2, Precision.FP8: 3e-1}
"""Largest difference of the estimator's velocity, as a share of its largest value where that is
above 1.
"""
_OTHERS = {"encoder": 2e-5, "pitch": 2e-3, "filter": 2e-5}


def tolerance(component: str, precision: Precision) -> float:
    """Of a graph's output, on the CPU."""
    return TOLERANCES[precision] if component == "estimator" else _OTHERS[component]


def compare(
    models: Mapping[str, onnx.ModelProto],
    cases: Iterable[Case],
    reference: Reference,
    executors: Mapping[str, Executor],
    precision: Precision,
    *,
    engines: Mapping[str, Execute] | None = None,
    factor: float = 1.0,
) -> tuple[Report, list[str]]:
    """A row for each case, and for each component that differs a line that names its first layer
    that does.

    executors: who runs a graph, by component. engines: who answers, where that is not the executor;
    its layers are then those of the executor's run of the graph. factor: on tolerances in float32.
    """
    report, ready, lines = Report(), dict(engines or {}), dict[str, str]()
    for case in cases:
        part = case.component
        allowed = tolerance(part, precision) * (factor if part != "estimator" or precision is Precision.FP32 else 1.0)
        if part == "estimator":
            allowed *= max(1.0, float(np.abs(case.wanted).max()))
        if part not in ready:
            ready[part] = executors[part](models[part])
        report.compare(f"{part}: {case.name}", _answer(ready[part], case), case.wanted, allowed)
        if report.rows[-1].verdict != "ok" and part not in lines:
            lines[part] = f"{part}: {first_difference(models[part], reference, case, executors[part], allowed)}"
    return report, list(lines.values())


def _answer(execute: Execute, case: Case) -> Array:
    return execute(case.inputs)[case.output]


def first_difference(
    model: onnx.ModelProto, reference: Reference, case: Case, executor: Executor, allowed: float
) -> str:
    """The first layer, in the order of computation, that is further than `allowed` from the torch
    path's, in words.

    Where a layer's values are larger than one, `allowed` is a share of the largest.
    """
    layers = layers_of(model)
    wanted = heard_layers(reference, case, layers)
    compared = [layer for layer in layers if layer.name in wanted]
    if not compared:
        return "it has no layers that could be looked at one by one"
    outputs = executor(with_outputs(model, [layer.value for layer in compared]))(case.inputs)
    for layer in compared:
        error = float(np.abs(outputs[layer.value].astype(np.float64) - wanted[layer.name]).max(initial=0.0))
        if not error <= allowed * max(1.0, float(np.abs(wanted[layer.name]).max())):
            return f"layer {layer.name} is the first that differs, by {error:.2e} ({case.name})"
    return f"every layer up to {compared[-1].name} agrees; what differs comes behind it ({case.name})"


def with_outputs(model: onnx.ModelProto, values: Sequence[str]) -> onnx.ModelProto:
    """A copy that hands these float32 values out as well."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    shown.graph.output.extend(inferred[value] for value in values)
    return shown
