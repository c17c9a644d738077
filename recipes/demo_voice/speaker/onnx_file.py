"""The speaker encoder as `campplus.onnx`: input `input` float32 [B, T, 80], output `output` float32
[B, 192].

Source of the signature: compatibility specification section 1.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper
from torch import Tensor

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.model_files.onnx_graph import Graph
from recipes.demo_voice.speaker import network
from services.frontend.prompts.features.fbank import BINS

INPUT, OUTPUT = "input", "output"


def _graph(parameters: Mapping[str, Tensor]) -> Graph:
    """`network.embed` as a graph."""
    graph = Graph()
    weights = {
        name: graph.weight(name, parameters[name])
        for name in network.shapes()
        if not name.startswith(("attention", "out."))
    }

    def norm(name: str, x: str) -> str:
        """[B, channels, T] -> [B, T, channels]."""
        frames = graph.add("Transpose", x, perm=[0, 2, 1])
        return graph.add(
            "LayerNormalization",
            frames,
            weights[f"{name}.weight"],
            weights[f"{name}.bias"],
            axis=-1,
            epsilon=network.EPSILON,
        )

    def linear(name: str, x: str) -> str:
        """Weights are stored [in, out] here, so that a product is all that it takes."""
        product = graph.add("MatMul", x, graph.weight(f"{name}.weight", parameters[f"{name}.weight"].T))
        return graph.add("Add", product, graph.weight(f"{name}.bias", parameters[f"{name}.bias"]))

    side = network.STEM_KERNEL // 2
    x = graph.add("Transpose", INPUT, perm=[0, 2, 1])
    x = graph.add(
        "Conv", x, weights["stem.weight"], weights["stem.bias"], pads=[side, side], strides=[network.STEM_STRIDE]
    )
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
    deviation = graph.add(
        "Sqrt", graph.add("Max", variance, graph.constant(np.array(network.LEAST_VARIANCE, np.float32)))
    )
    vector = linear("out", graph.add("Squeeze", graph.add("Concat", mean, deviation, axis=2), time))
    ones = graph.constant(np.ones(SPEAKER_DIMENSION, np.float32))
    graph.add("LayerNormalization", vector, ones, axis=-1, epsilon=network.EPSILON, name=OUTPUT)
    return graph


def write_onnx(path: Path, parameters: Mapping[str, Tensor]) -> None:
    """The same bytes for the same weights."""
    features = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", "frames", BINS])
    vector = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", SPEAKER_DIMENSION])
    _graph(parameters).write(path, "speaker", [features], [vector])


def run(path: Path, features: Tensor) -> Tensor:
    """Centred features float32 [B, T, 80] -> float32 [B, 192] in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (vectors,) = session.run([OUTPUT], {INPUT: features.numpy()})
    return torch.from_numpy(vectors)


def largest_difference(path: Path, parameters: Mapping[str, Tensor], features: Tensor) -> float:
    """Largest difference between the file and the torch network in an entry of the vectors of
    `features`.
    """
    expected = network.embed({name: tensor.to(torch.float32) for name, tensor in parameters.items()}, features)
    return float((run(path, features) - expected).abs().max())
