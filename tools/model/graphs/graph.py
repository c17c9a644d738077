"""Writing an ONNX graph node by node.

The graphs are written from the weights instead of traced from running code: every value has a name
of our choosing, lengths are free by construction, the types are ours to set, and the same weights
give the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

END = int(np.iinfo(np.int32).max)
"""Where a slice ends that goes to the end of an axis."""


class Precision(Enum):
    """Number type of the products; see `Graph`."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


_VERSIONS = dict.fromkeys(Precision, (18, 8)) | {Precision.FP8: (19, 9)}
"""Opset and version of the file format: 19 is the first opset with 8-bit floating point."""
_PRODUCTS: dict[Precision, tuple[int, Any]] = {
    Precision.FP32: (TensorProto.FLOAT, np.float32),
    Precision.FP16: (TensorProto.FLOAT16, np.float16),
    Precision.BF16: (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    Precision.FP8: (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}
Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A place to compare at: `value` is the tensor that layer `name` hands on."""

    name: str
    value: str


class Graph:
    """Nodes, weights and layers of one graph. tensors: float32, by name.

    Matrix products and attention are in the type of `precision`; everything between them (norms,
    residual sums, activations of the time, masks) stays float32, with a Cast at each border,
    because TensorRT networks are strongly typed and take types from the file.
    """

    def __init__(self, name: str, tensors: Mapping[str, Array], precision: Precision = Precision.FP32) -> None:
        self.name, self.tensors, self.precision = name, tensors, precision
        self.layers: list[Layer] = []
        self.product_inputs: dict[str, str] = {}
        """Name of each linear map to the tensor that it multiplies: what an 8-bit scale is chosen
        from.
        """
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self.product_type, self.product_dtype = _PRODUCTS[precision]

    def inputs(self, kinds: Mapping[str, tuple[int, Sequence[str | int | None]]]) -> None:
        """Number type and shape of each input; names in a shape are free lengths."""
        self._inputs = [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in kinds.items()]

    def output(self, name: str, value: str, shape: Sequence[str | int | None]) -> None:
        """Hand `value` out, float32, under `name`."""
        self.node("Identity", [value], name, out=name)
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def weight(self, name: str, array: Array) -> str:
        """A constant in its own type and shape; the same name twice is the same constant."""
        if name not in self._weights:
            if array.dtype.kind == "f" and not np.isfinite(array.astype(np.float32)).all():
                raise ValueError(f"{self.name}: weight {name} has values that {array.dtype} cannot hold")
            # ascontiguousarray makes a vector of a scalar, which TensorRT's Range does not take.
            self._weights[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def own(self, name: str) -> list[str]:
        """The constants of tensors `name`.weight and `name`.bias."""
        return [self.weight(f"{name}.{kind}", self.tensors[f"{name}.{kind}"]) for kind in ("weight", "bias")]

    def number(self, value: float, like: str = "full") -> str:
        """A scalar, `full` float32 or in the type of the `product`s."""
        dtype = np.float32 if like == "full" else self.product_dtype
        return self.weight(f"number.{like}.{value!r}", np.asarray(value).astype(dtype))

    def integers(self, *values: int) -> str:
        """int64 [n]."""
        return self.weight(f"integers.{'.'.join(map(str, values))}", np.asarray(values, np.int64))

    def node(self, op: str, inputs: Sequence[str], name: str, *, out: str = "", **attributes: Any) -> str:
        """Add a node; returns its value, named as the node unless `out` is given."""
        value = out or name
        self._nodes.append(helper.make_node(op, list(inputs), [value], name=f"{op}:{name}", **attributes))
        return value

    def slice(self, x: str, start: int | str, end: int | str, axis: int, name: str) -> str:
        """Part of an axis. start, end: numbers, or values int64 [1]."""
        limits = [limit if isinstance(limit, str) else self.integers(limit) for limit in (start, end, axis)]
        return self.node("Slice", [x, *limits], name)

    def split(self, x: str, sizes: Sequence[int], name: str) -> list[str]:
        """Parts of the last axis."""
        values = [f"{name}.{at}" for at in range(len(sizes))]
        self._nodes.append(helper.make_node("Split", [x, self.integers(*sizes)], values, name=f"Split:{name}", axis=-1))
        return values

    def layer(self, name: str, value: str) -> str:
        """Remember `value` as what layer `name` hands on."""
        self.layers.append(Layer(name, value))
        return value

    def model(self, metadata: dict[str, str]) -> onnx.ModelProto:
        """The finished model, checked. Raises onnx.checker.ValidationError."""
        opset, file_format = _VERSIONS[self.precision]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, list(self._weights.values()))
        model = helper.make_model(
            graph,
            producer_name="cosyserve",
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=file_format,
        )
        properties = {
            "precision": self.precision.value,
            "layers": "\n".join(f"{layer.name}\t{layer.value}" for layer in self.layers),
        }
        helper.set_model_props(model, dict(sorted((metadata | properties).items())))
        onnx.checker.check_model(model, full_check=True)
        return model


def layers_of(model: onnx.ModelProto) -> list[Layer]:
    """The layers that the writer remembered, in the order of computation; none in a file that is
    not ours.
    """
    text = {entry.key: entry.value for entry in model.metadata_props}.get("layers", "")
    return [Layer(*line.split("\t")) for line in text.splitlines()]


def write(model: onnx.ModelProto, path: Path) -> None:
    """The same bytes for the same model, weights inside: the largest graph has 1.3 GB, one file
    may hold 2 GiB.
    """
    path.write_bytes(model.SerializeToString(deterministic=True))
