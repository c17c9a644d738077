"""Graphs and engines against the torch path, case by case, and the first layer that differs where
one does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
import torch
from torch import Tensor

from cosyserve.spec import LOOKAHEAD_TOKENS
from services.token2wav.engines.shapes import SOURCE_MARGIN
from services.token2wav.flow.dit.block import Block
from services.token2wav.flow.layers import LookAhead
from services.token2wav.flow.step_dit.estimator import StepBlock
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import ConformerLayer
from services.token2wav.flow.unet.estimator import Resnet, Transformer
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.method_outputs import Outputs, recorded_outputs
from tools.model.comparison.vocoder_calls import Layers
from tools.model.graphs.execute import Execute, Executor
from tools.model.graphs.graph import Array, Layer, Precision, layers_of
from tools.verify.flow_calls import velocity
from tools.verify.report import Report

TOLERANCES = {Precision.FP32: 2e-5, Precision.FP16: 1e-2, Precision.BF16: 8e-2, Precision.FP8: 3e-1}
"""Largest difference of the estimator's velocity, as a share of its largest value where that is
above 1.
"""
_OTHERS = {"encoder": 2e-5, "pitch": 2e-3, "filter": 2e-5}
_ENCODER: Layers = {(LookAhead, "__call__"): "pre_lookahead", (ConformerLayer, "__call__"): "encoders."}


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
        made = without_padding(ready[part](case.inputs)[case.output], case.wanted.shape)
        report.compare(f"{part}: {case.name}", made, case.wanted, allowed)
        if report.rows[-1].verdict != "ok" and part not in lines:
            lines[part] = f"{part}: {first_difference(models[part], reference, case, executors[part], allowed)}"
    return report, list(lines.values())


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
        made = without_padding(outputs[layer.value], wanted[layer.name].shape).astype(np.float64)
        error = float(np.abs(made - wanted[layer.name]).max(initial=0.0))
        if not error <= allowed * max(1.0, float(np.abs(wanted[layer.name]).max())):
            return f"layer {layer.name} is the first that differs, by {error:.2e} ({case.name})"
    return f"every layer up to {compared[-1].name} agrees; what differs comes behind it ({case.name})"


def without_padding(array: Array, shape: tuple[int, ...]) -> Array:
    """The beginning of `array` along every axis."""
    real: Array = array[tuple(slice(length) for length in shape)]
    return real


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
    if case.again is not None:
        return _again(case.again, layers)
    if case.component == "estimator":
        return _estimator(reference, given, layers)
    if case.component == "filter":
        return _filter(reference, given, layers)
    if case.component == "encoder":
        return _encoder(reference, given, layers)
    with recorded_outputs(*reference.vocoder.pitch_layers) as outputs:
        reference.vocoder.pitch(given["mel"])
    return _named(layers, outputs, reference.vocoder.pitch_layers)


def _again(call: Callable[[], object], layers: list[Layer]) -> dict[str, Array]:
    parts = {**_ENCODER, (StepBlock, "__call__"): "blocks."}
    with recorded_outputs(*parts) as outputs:
        call()
    return _named(layers, outputs, parts)


def _named(layers: list[Layer], outputs: Outputs, parts: Layers) -> dict[str, Array]:
    """The layers that the outputs of `parts` are the results of."""
    arrays: dict[str, Array] = {}
    for method, part in parts.items():
        names = [layer.name for layer in layers if part in layer.name]
        arrays |= dict(zip(names, (array for source, array in outputs if source == method), strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _estimator(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    frames = given["x"].shape[2]
    allowed = given.get("attention", torch.ones(frames, frames, dtype=torch.bool))
    resnet, transformer, dit = (Resnet, "__call__"), (Transformer, "__call__"), (Block, "__call__")
    with recorded_outputs(resnet, transformer, dit) as outputs:
        joined, time, _ = velocity(reference.flow, given, allowed)
    blocks = [layer.name for layer in layers if layer.name.startswith(("down", "mid", "up"))]
    resnets = [name for name in blocks if name.endswith(".0") and name.count(".") == 2]
    transformers = [name for name in blocks if name.count(".") == 3]
    dits = [layer.name for layer in layers if layer.name.startswith("transformer_blocks.")]
    # The DiT's graph has the inputs in the checkpoint's order, so they are not compared.
    arrays = {"time_embed": time.numpy()} if dits else {"inputs": joined.numpy(), "time_mlp": time.numpy()}
    for names, method in ((resnets, resnet), (transformers, transformer), (dits, dit)):
        arrays |= dict(zip(names, (array for source, array in outputs if source == method), strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _encoder(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    tokens = given["tokens"].shape[1] - LOOKAHEAD_TOKENS
    chunked = "attention" in given and not bool(given["attention"].all())
    rows = []
    for row, known in zip(given["tokens"].long(), given["known"], strict=True):
        look = int(known[tokens:].sum())
        with recorded_outputs(*_ENCODER) as outputs:
            reference.flow.mu([row[:tokens]], [row[tokens : tokens + look]], [0], CachedPass.whole(1), chunked=chunked)
        rows.append(_named(layers, outputs, _ENCODER))
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _filter(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    mel, source = given["mel"], given["source"][:, SOURCE_MARGIN:-SOURCE_MARGIN]
    parts = reference.vocoder.filter_layers
    with recorded_outputs(*parts) as outputs:
        reference.vocoder.samples(mel, source)
    return _named([layer for layer in layers if not layer.name.endswith(".merged")], outputs, parts)
