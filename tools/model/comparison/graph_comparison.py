"""Graphs and engines against the torch path, case by case, and the first layer that differs where
one does.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
import torch
from torch import Tensor

from services.token2wav.engines.shapes import SOURCE_MARGIN
from services.token2wav.flow.encoder import ConformerLayer, Encoder
from services.token2wav.flow.estimator import Resnet, Transformer
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.vocoder.hift import FilterNetwork, Level, ResidualBlock
from services.token2wav.vocoder.source import F0Predictor
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.method_outputs import Outputs, recorded_outputs
from tools.model.graphs.execute import Execute, Executor
from tools.model.graphs.graph import Array, Layer, Precision, layers_of
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
    wanted = torch_layers(reference, case, layers)
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


@torch.inference_mode()
def torch_layers(reference: Reference, case: Case, layers: list[Layer]) -> dict[str, Array]:
    """The layers of `case` that the torch path has under a name of its own, in the order of
    computation.
    """
    given = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    if case.component == "estimator":
        return _estimator(reference, given, layers)
    if case.component == "filter":
        return _filter(reference, given, layers)
    if case.component == "encoder":
        return _encoder(reference, given, layers)
    with recorded_outputs((F0Predictor, "layer")) as outputs:
        reference.vocoder.f0(given["mel"])
    return _named(layers, outputs, {"F0Predictor.layer": ("condnet.",)})


def _named(layers: list[Layer], outputs: Outputs, kinds: Mapping[str, tuple[str, ...]]) -> dict[str, Array]:
    """kinds: of which method the results are those layers whose names contain one of the parts."""
    arrays: dict[str, Array] = {}
    for kind, parts in kinds.items():
        results = [array for name, array in outputs if name == kind]
        names = [layer.name for layer in layers if any(part in layer.name for part in parts)]
        arrays |= dict(zip(names, results, strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _estimator(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    frames = given["x"].shape[2]
    allowed = given.get("attention", torch.ones(frames, frames, dtype=torch.bool))
    with recorded_outputs((Resnet, "__call__"), (Transformer, "__call__")) as outputs:
        joined, time, _ = reference.velocity(given, allowed)
    blocks = [layer for layer in layers if layer.name.startswith(("down", "mid", "up"))]
    resnets = [layer.name for layer in blocks if layer.name.endswith(".0") and layer.name.count(".") == 2]
    transformers = [layer.name for layer in blocks if layer.name.count(".") == 3]
    arrays = {"inputs": joined.numpy(), "time_mlp": time.numpy()}
    for names, kind in ((resnets, "Resnet.__call__"), (transformers, "Transformer.__call__")):
        arrays |= dict(zip(names, [array for name, array in outputs if name == kind], strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _encoder(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    tokens = given["mask"].shape[2]
    chunked = not bool(given["attention"].all())
    kinds = {
        "Encoder.pre_lookahead": ("pre_lookahead",),
        "ConformerLayer.__call__": ("encoders.",),
    }
    rows = []
    for row, known in zip(given["tokens"].long(), given["known"], strict=True):
        look = int(known[tokens:].sum())
        with recorded_outputs((ConformerLayer, "__call__"), (Encoder, "pre_lookahead")) as outputs:
            reference.flow.mu([row[:tokens]], [row[tokens : tokens + look]], [0], CachedPass.whole(1), chunked=chunked)
        rows.append(_named(layers, outputs, kinds))
    return {name: torch.cat([torch.from_numpy(row[name]) for row in rows]).numpy() for name in rows[0]}


def _filter(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    mel, source = given["mel"], given["source"][:, SOURCE_MARGIN:-SOURCE_MARGIN]
    methods = (
        (ResidualBlock, "__call__"),
        (Level, "__call__"),
        (FilterNetwork, "conv_pre"),
        (FilterNetwork, "conv_post"),
    )
    with recorded_outputs(*methods) as outputs:
        reference.vocoder.filter(mel, source, 0, mel.shape[2])
    levels = [layer for layer in layers if not layer.name.endswith(".merged")]
    return _named(
        levels,
        outputs,
        {
            "ResidualBlock.__call__": ("resblocks.",),
            "Level.__call__": ("levels.",),
            "FilterNetwork.conv_pre": ("conv_pre",),
            "FilterNetwork.conv_post": ("conv_post",),
        },
    )
