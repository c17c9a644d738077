"""Kokoro's weights out of its 8-bit ONNX file, in single precision under the names of the published
checkpoint.

The file holds each matrix as 8-bit integers with a scale and a zero point, to be multiplied with
activations that are rounded to 8 bits on the way, and rounds each bias down to the product of both
scales. Only the integers of the matrices are used here: activations and biases stay exact, which
sounds cleaner than the file does in the runtime that it was made for.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from recipes.demo_voice.teacher.kokoro import Kokoro

Array = NDArray[np.float32]
_REPEAT = re.compile(r"_\d+$")
_LEAF = re.compile(r"/(?:Conv|Gemm_MatMul|MatMul|LSTM)_quant$|/(?:ConvTranspose|Conv|MatMul)$")
_PROSODY = re.compile(r"^(?:F0|N)(?:\.|_proj)|^shared")


def load_kokoro(path: Path, device: torch.device | str = "cpu") -> Kokoro:
    """The model of kokoro-v1.0.int8.onnx, ready to speak on `device`. Raises RuntimeError when the
    file lacks a tensor of the model.
    """
    model = Kokoro(grain=32 if torch.device(device).type == "cuda" else 1)
    wanted = model.state_dict()
    published = dict(published_tensors(onnx.load(str(path)).graph))
    tensors = {
        name: value.reshape(wanted[name].shape) if name in wanted else value for name, value in published.items()
    }
    missing = model.load_state_dict(tensors, strict=False).missing_keys
    if missing:
        raise RuntimeError(f"{path} lacks {len(missing)} tensors of the model, among them {', '.join(missing[:4])}")
    return model.eval().requires_grad_(False).to(device)


def published_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, Tensor]]:
    """Parameter names of the checkpoint and float32 values; those of a layer that is applied
    repeatedly come more than once.
    """
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for name, array in stored.items():
        if array.dtype == np.float32 and name.startswith(("encoder.", "decoder.")) and not name.endswith("_scale"):
            yield _published(name), _torch(array)
    for node in graph.node:
        layer = _layer(node.name)
        match node.op_type:
            case "ConvInteger":
                yield f"{layer}.weight", _torch(_dequantised(stored, node.input[1], node.input[3], axis=0))
            case "MatMulInteger" if node.input[1] in stored:
                yield f"{layer}.weight", _torch(_dequantised(stored, node.input[1], node.input[3], axis=1).T)
            case "Conv" | "ConvTranspose":
                yield f"{layer}.weight", _torch(stored[node.input[1]])
            case "MatMul" if node.input[1] in stored:
                yield f"{layer}.weight", _torch(stored[node.input[1]].T)
            case "Gather" if node.input[0].endswith("_quantized"):
                zero = "encoder.bert.embeddings.word_embeddings.weight_zero_point"
                yield (
                    _published(node.input[0].removesuffix("_quantized")),
                    _torch(_dequantised(stored, node.input[0], zero, axis=0)),
                )
            case "DynamicQuantizeLSTM":
                yield from _recurrence(stored, layer, node)


def _layer(node: str) -> str:
    """Name of the layer that a node belongs to: `/a/b/b.0/Conv_quant` and `/a/b/b.0_3/Conv_quant`
    are `a.b.0`.
    """
    parts = [_REPEAT.sub("", part) for part in _LEAF.sub("", node).strip("/").split("/")]
    outer = [part for part, inner in zip(parts, [*parts[1:], ""], strict=True) if not inner.startswith(f"{part}.")]
    return _published(".".join(outer))


def _published(name: str) -> str:
    """The checkpoint's name of a parameter: the exporter's wrapping taken off, pitch and energy put
    back into their module.
    """
    name = name.removeprefix("encoder.").removeprefix("decoder.")
    return f"predictor.{name}" if _PROSODY.match(name) else name


def _dequantised(stored: dict[str, NDArray[np.generic]], name: str, zero: str, *, axis: int) -> Array:
    """(q - zero) * scale, both of the whole matrix or one for each output, which is `axis`."""
    quantised = stored[name].astype(np.float32)
    shape = [-1 if place == axis else 1 for place in range(quantised.ndim)]
    scale = stored[f"{name.removesuffix('_quantized')}_scale"].astype(np.float32)
    offset = stored[zero].astype(np.float32)
    return (quantised - _along(offset, shape)) * _along(scale, shape)


def _along(values: Array, shape: list[int]) -> Array:
    return values.reshape(shape) if values.size > 1 else values.reshape(())


def _recurrence(
    stored: dict[str, NDArray[np.generic]], layer: str, node: onnx.NodeProto
) -> Iterator[tuple[str, Tensor]]:
    """A bidirectional LSTM: ONNX has its gates in the order input, output, forget, cell; torch
    input, forget, cell, output.
    """
    biases = stored[node.input[3]].astype(np.float32)
    for direction, suffix in enumerate(("", "_reverse")):
        for kind, place, scales, zeros in (("ih", 1, 8, 9), ("hh", 2, 10, 11)):
            quantised = stored[node.input[place]][direction].astype(np.float32)
            scale, zero = (stored[node.input[index]].astype(np.float32)[direction] for index in (scales, zeros))
            yield f"{layer}.weight_{kind}_l0{suffix}", _torch(_gates(((quantised - zero) * scale).T))
        for kind, bias in zip(("ih", "hh"), np.split(biases[direction], 2), strict=True):
            yield f"{layer}.bias_{kind}_l0{suffix}", _torch(_gates(bias))


def _gates(rows: Array) -> Array:
    entry, output, forget, cell = np.split(rows, 4)
    return np.concatenate([entry, forget, cell, output])


def _torch(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32))
