"""Running a graph of the tools once: by ONNX Runtime, by TensorRT, or by onnx's own definition of
each operator where neither can.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import onnx
import torch

from cosyserve.engines.engine_cache import COMPONENTS
from cosyserve.errors import SettingsError
from services.token2wav.engines.onnx_runtime import onnx_library
from services.token2wav.engines.shapes import Profile
from services.token2wav.engines.slots import Slots, filled
from services.token2wav.engines.tensorrt import TensorRTEngine, on_device
from tools.model.graphs.graph import Array, Precision, write
from tools.model.graphs.tensorrt_plan import PlanOptions, build_plan

Execute = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Inputs -> outputs by name."""
Executor = Callable[[onnx.ModelProto], Execute]
_CUDA = "CUDAExecutionProvider"


def by_onnx_runtime(model: onnx.ModelProto, provider: str = "CPUExecutionProvider") -> Execute:
    """On the CPU, or where `provider` computes. Raises SettingsError where that cannot be set
    up.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    settings = {"use_tf32": "0"} if provider == _CUDA else {}
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[(provider, settings)])
    if provider not in session.get_providers():  # it says nothing and computes on the CPU
        raise SettingsError(
            f"onnxruntime {onnxruntime.__version__} cannot set up its {provider} here; its own lines say why"
        )
    names = [entry.name for entry in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def on_cuda() -> Executor:
    """ONNX Runtime on the first visible GPU. Raises SettingsError for a wheel that is for CPUs
    only.
    """
    library = onnx_library()
    if _CUDA not in library.get_available_providers():
        raise SettingsError(
            f"onnxruntime {library.__version__} has no {_CUDA}: pip install onnxruntime-gpu in its place"
        )
    return partial(by_onnx_runtime, provider=_CUDA)


def by_definition(model: onnx.ModelProto) -> Execute:
    """onnx's reference implementation in numpy: slow, and every number type is there. Sums run in
    float32, as in the kernels of a GPU.
    """
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(_summed_in_full(model))
    names = [entry.name for entry in model.graph.output]
    return lambda inputs: dict(zip(names, evaluator.run(names, dict(inputs)), strict=True))


def _summed_in_full(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose products and softmaxes take float32 and are rounded to their own type
    afterwards.
    """
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    nodes = []
    for node in inferred.graph.node:
        kind = types.get(node.output[0], onnx.TensorProto.FLOAT)
        if node.op_type not in ("MatMul", "Softmax") or kind == onnx.TensorProto.FLOAT:
            nodes.append(node)
            continue
        value = node.output[0]
        for at, name in enumerate(node.input):
            nodes.append(onnx.helper.make_node("Cast", [name], [f"{value}.in{at}"], to=onnx.TensorProto.FLOAT))
            node.input[at] = f"{value}.in{at}"
        node.output[0] = f"{value}.sum"
        nodes += [node, onnx.helper.make_node("Cast", [f"{value}.sum"], [value], to=kind)]
    del inferred.graph.node[:]
    inferred.graph.node.extend(nodes)
    return inferred


def on_cpu(precision: Precision) -> dict[str, Executor]:
    """By component: ONNX Runtime where its CPU kernels have the types. precision: of the estimator,
    the others are float32.
    """
    estimator = by_onnx_runtime if precision in (Precision.FP32, Precision.FP16) else by_definition
    executors: dict[str, Executor] = dict.fromkeys(COMPONENTS, by_onnx_runtime)
    return executors | {"estimator": estimator}


def by_tensorrt(profiles: Mapping[str, list[Profile]], device: torch.device, slots: Slots) -> Executor:
    """Builds a plan of whatever graph it is given. profiles: by name of the graph."""

    def execute(model: onnx.ModelProto) -> Execute:
        built = profiles[model.graph.name]
        with tempfile.TemporaryDirectory() as folder:
            graph, plan = Path(folder) / "graph.onnx", Path(folder) / "graph.plan"
            write(model, graph)
            with on_device(device):
                plan.write_bytes(build_plan(graph, built, PlanOptions()))
            engine = TensorRTEngine(model.graph.name, plan, device, built)
        return lambda inputs: once(engine, slots, inputs)

    return execute


def once(engine: TensorRTEngine, slots: Slots, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """One execution of a plan."""
    shapes = {name: array.shape for name, array in inputs.items()}
    with slots.lease() as slot:
        fixed = slot.at(engine, shapes, engine.output_shapes(shapes, slot.stream.handle))
        filled(fixed.inputs, {name: torch.from_numpy(array) for name, array in inputs.items()})
        fixed.run()
        return {name: tensor.cpu().numpy() for name, tensor in fixed.outputs.items()}
