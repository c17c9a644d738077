"""The speaker encoder as `campplus.onnx`: input `input` float32 [B, T, 80], output `output` float32 [B, 192].

Weights are stored in half precision and widened by the graph; ONNX Runtime folds that away when it loads the file.
Source of the signature: compatibility specification section 1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.speaker import network
from services.frontend.features.fbank import BINS

OPSET = 17
IR_VERSION = 8
INPUT, OUTPUT = "input", "output"


class _Graph:
    """Nodes in the order they are asked for; every value gets a name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, tensor: Tensor) -> str:
        """A half-precision initializer, as float32."""
        self.initializers.append(numpy_helper.from_array(tensor.detach().to("cpu", torch.float16).contiguous().numpy(), name))
        return self.add("Cast", name, to=TensorProto.FLOAT)

    def constant(self, value: npt.NDArray[np.generic]) -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name


def build(parameters: Mapping[str, Tensor]) -> onnx.ModelProto:
    """`network.embed` as a graph."""
    graph = _Graph()
    weights = {name: graph.weight(name, parameters[name]) for name in network.shapes() if not name.startswith(("attention", "out."))}

    def norm(name: str, x: str) -> str:
        """[B, channels, T] -> [B, T, channels]."""
        frames = graph.add("Transpose", x, perm=[0, 2, 1])
        return graph.add("LayerNormalization", frames, weights[f"{name}.weight"], weights[f"{name}.bias"], axis=-1, epsilon=network.EPSILON)

    def linear(name: str, x: str) -> str:
        """Weights are stored [in, out] here, so that a product is all that it takes."""
        product = graph.add("MatMul", x, graph.weight(f"{name}.weight", parameters[f"{name}.weight"].T))
        return graph.add("Add", product, graph.weight(f"{name}.bias", parameters[f"{name}.bias"]))

    side = network.STEM_KERNEL // 2
    x = graph.add("Transpose", INPUT, perm=[0, 2, 1])
    x = graph.add("Conv", x, weights["stem.weight"], weights["stem.bias"], pads=[side, side], strides=[network.STEM_STRIDE])
    for index, dilation in enumerate(network.DILATIONS):
        block = f"blocks.{index}"
        side = dilation * (network.KERNEL // 2)
        inner = graph.add("Transpose", graph.add("Relu", norm(f"{block}.norm", x)), perm=[0, 2, 1])
        weight, bias = weights[f"{block}.conv.weight"], weights[f"{block}.conv.bias"]
        x = graph.add("Add", x, graph.add("Conv", inner, weight, bias, pads=[side, side], dilations=[dilation]))
    frames = norm("norm", x)
    shares = graph.add("Softmax", linear("attention.out", graph.add("Tanh", linear("attention.in", frames))), axis=1)
    time = graph.constant(np.array([1], np.int64))
    mean = graph.add("ReduceSum", graph.add("Mul", shares, frames), time, keepdims=1)
    apart = graph.add("Sub", frames, mean)
    variance = graph.add("ReduceSum", graph.add("Mul", shares, graph.add("Mul", apart, apart)), time, keepdims=1)
    deviation = graph.add("Sqrt", graph.add("Max", variance, graph.constant(np.array(network.LEAST_VARIANCE, np.float32))))
    vector = linear("out", graph.add("Squeeze", graph.add("Concat", mean, deviation, axis=2), time))
    ones = graph.constant(np.ones(SPEAKER_DIMENSION, np.float32))
    graph.add("LayerNormalization", vector, ones, axis=-1, epsilon=network.EPSILON, name=OUTPUT)
    description = helper.make_graph(
        graph.nodes,
        "speaker",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", "frames", BINS])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", SPEAKER_DIMENSION])],
        graph.initializers,
    )
    model = helper.make_model(description, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="cosyserve")
    onnx.checker.check_model(model, full_check=True)
    return model


def write_onnx(path: Path, parameters: Mapping[str, Tensor]) -> None:
    """The same bytes for the same weights."""
    path.write_bytes(build(parameters).SerializeToString(deterministic=True))


def largest_difference(path: Path, parameters: Mapping[str, Tensor], features: Tensor) -> float:
    """Largest difference between the file in ONNX Runtime and the torch network, over centred features float32 [B, T, 80]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run([OUTPUT], {INPUT: features.numpy()})
    expected = network.embed({name: tensor.to(torch.float32) for name, tensor in parameters.items()}, features)
    return float((torch.from_numpy(found) - expected).abs().max())
