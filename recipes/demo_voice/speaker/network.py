"""Filterbank to speaker vector, in torch and as `campplus.onnx`: a time-delay network with
attentive statistics (Snyder et al. 2018, Okabe et al. 2018), 0.6 M parameters.

The file's input is `input` float32 [B, T, 80], its output `output` float32 [B, 192]
(compatibility specification section 1). Layer norm instead of batch norm: the exported network is
what was trained, and a row never depends on its batch. Parameters are a mapping of names, as
everywhere in this recipe.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.model_files.onnx_graph import Graph, run
from recipes.demo_voice.training.parameter_store import uniform_by_inputs
from services.frontend.prompts.features.fbank import BINS

INPUT, OUTPUT = "input", "output"
WIDTH = 192
STEM_KERNEL = 5
STEM_STRIDE = 2
KERNEL = 3
DILATIONS = (1, 2, 3, 4)
ATTENTION = 64
EPSILON = 1e-5
LEAST_VARIANCE = 1e-4
_TRANSPOSED = ("attention.in.weight", "attention.out.weight", "out.weight")
"""Linear layers, which the file stores as [in, out]; torch wants [out, in]."""


def shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor; convolutions [out, in, kernel], linear layers [out, in]."""
    named: dict[str, tuple[int, ...]] = {"stem.weight": (WIDTH, BINS, STEM_KERNEL), "stem.bias": (WIDTH,)}
    for index in range(len(DILATIONS)):
        named |= {f"blocks.{index}.norm.weight": (WIDTH,), f"blocks.{index}.norm.bias": (WIDTH,)}
        named |= {f"blocks.{index}.conv.weight": (WIDTH, WIDTH, KERNEL), f"blocks.{index}.conv.bias": (WIDTH,)}
    named |= {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
    named |= {"attention.in.weight": (ATTENTION, WIDTH), "attention.in.bias": (ATTENTION,)}
    named |= {"attention.out.weight": (WIDTH, ATTENTION), "attention.out.bias": (WIDTH,)}
    named |= {"out.weight": (SPEAKER_DIMENSION, 2 * WIDTH), "out.bias": (SPEAKER_DIMENSION,)}
    return named


def initial(name: str, shape: tuple[int, ...]) -> Tensor:
    """Norms at one, biases at zero, weights uniform by their inputs."""
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    return torch.zeros(shape) if name.endswith("bias") else uniform_by_inputs(shape)


def embed(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """features [B, T, 80], the mean over time taken off each bin -> speaker vectors float32 [B,
    192].

    T: frames of 10 ms, at least one. A vector has mean 0 and variance 1 over its entries: its
    length is that of 192 normal numbers, 13.9.
    """
    x = F.conv1d(
        features.transpose(1, 2), parameters["stem.weight"], parameters["stem.bias"], STEM_STRIDE, STEM_KERNEL // 2
    )
    for index, dilation in enumerate(DILATIONS):
        block = f"blocks.{index}"
        inner = F.relu(_norm(parameters, f"{block}.norm", x))
        weight, bias = parameters[f"{block}.conv.weight"], parameters[f"{block}.conv.bias"]
        x = x + F.conv1d(inner, weight, bias, 1, dilation * (KERNEL // 2), dilation)
    frames = _norm(parameters, "norm", x).transpose(1, 2)
    inner = torch.tanh(F.linear(frames, parameters["attention.in.weight"], parameters["attention.in.bias"]))
    shares = (
        F.linear(inner, parameters["attention.out.weight"], parameters["attention.out.bias"]).float().softmax(dim=1)
    )
    frames = frames.float()
    mean = (shares * frames).sum(dim=1)
    variance = (shares * (frames - mean[:, None]).square()).sum(dim=1)
    pooled = torch.cat([mean, variance.clamp(min=LEAST_VARIANCE).sqrt()], dim=1)
    vector = F.linear(pooled, parameters["out.weight"], parameters["out.bias"]).float()
    return F.layer_norm(vector, (SPEAKER_DIMENSION,), eps=EPSILON)


def _norm(parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Layer norm over the channels of [B, channels, T]."""
    return F.layer_norm(
        x.transpose(1, 2), (WIDTH,), parameters[f"{name}.weight"], parameters[f"{name}.bias"], EPSILON
    ).transpose(1, 2)


def _graph(parameters: Mapping[str, Tensor]) -> Graph:
    """`embed` as a graph."""
    graph = Graph()
    weights = {
        name: graph.weight(name, parameters[name]) for name in shapes() if not name.startswith(("attention", "out."))
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
            epsilon=EPSILON,
        )

    def linear(name: str, x: str) -> str:
        return graph.linear(name, parameters[f"{name}.weight"], parameters[f"{name}.bias"], x)

    side = STEM_KERNEL // 2
    x = graph.add("Transpose", INPUT, perm=[0, 2, 1])
    x = graph.add("Conv", x, weights["stem.weight"], weights["stem.bias"], pads=[side, side], strides=[STEM_STRIDE])
    for index, dilation in enumerate(DILATIONS):
        block = f"blocks.{index}"
        side = dilation * (KERNEL // 2)
        inner = graph.add("Transpose", graph.add("Relu", norm(f"{block}.norm", x)), perm=[0, 2, 1])
        weight, bias = weights[f"{block}.conv.weight"], weights[f"{block}.conv.bias"]
        x = graph.add("Add", x, graph.add("Conv", inner, weight, bias, pads=[side, side], dilations=[dilation]))
    frames = norm("norm", x)
    shares = graph.add("Softmax", linear("attention.out", graph.add("Tanh", linear("attention.in", frames))), axis=1)
    time = graph.constant(np.array([1], np.int64))
    mean = graph.add("ReduceSum", graph.add("Mul", shares, frames), time, keepdims=1)
    apart = graph.add("Sub", frames, mean)
    variance = graph.add("ReduceSum", graph.add("Mul", shares, graph.add("Mul", apart, apart)), time, keepdims=1)
    deviation = graph.add("Sqrt", graph.add("Max", variance, graph.constant(np.array(LEAST_VARIANCE, np.float32))))
    vector = linear("out", graph.add("Squeeze", graph.add("Concat", mean, deviation, axis=2), time))
    ones = graph.constant(np.ones(SPEAKER_DIMENSION, np.float32))
    graph.add("LayerNormalization", vector, ones, axis=-1, epsilon=EPSILON, name=OUTPUT)
    return graph


def write_onnx(path: Path, parameters: Mapping[str, Tensor]) -> None:
    """The same bytes for the same weights."""
    features = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", "frames", BINS])
    vector = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", SPEAKER_DIMENSION])
    _graph(parameters).write(path, "speaker", [features], [vector])


def read_onnx(path: Path) -> dict[str, Tensor]:
    """The weights that `write_onnx` stored, float16. Raises ValueError when the file is of another
    network.
    """
    stored = {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
    weights: dict[str, Tensor] = {}
    for name, shape in shapes().items():
        if name not in stored:
            raise ValueError(f"{path}: has no weights {name!r}; a speaker encoder of this recipe is expected")
        tensor = torch.from_numpy(stored[name].copy())
        weights[name] = tensor.T.contiguous() if name in _TRANSPOSED else tensor
        if weights[name].shape != shape:
            raise ValueError(f"{path}: {name!r} is {list(weights[name].shape)}, expected {list(shape)}")
    return weights


def largest_difference(path: Path, parameters: Mapping[str, Tensor], features: Tensor) -> float:
    """Largest difference between the file and the torch network in an entry of the vectors of
    `features`.
    """
    expected = embed({name: tensor.to(torch.float32) for name, tensor in parameters.items()}, features)
    return float((run(path, {INPUT: features.numpy()}) - expected).abs().max())
