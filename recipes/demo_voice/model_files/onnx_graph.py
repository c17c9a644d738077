"""An ONNX file put together node by node, its weights in half precision.

The graph widens the weights to float32; ONNX Runtime folds that away when it loads the file, so
that only the file is smaller.
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

OPSET = 17
IR_VERSION = 8


class Graph:
    """Nodes in the order they are asked for; every value gets a name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """One node with one output, whose name is returned."""
        name = name or f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, tensor: Tensor) -> str:
        """A half-precision initializer, as float32."""
        self._initializers.append(
            numpy_helper.from_array(tensor.detach().to("cpu", torch.float16).contiguous().numpy(), name)
        )
        return self.add("Cast", name, to=TensorProto.FLOAT)

    def linear(self, name: str, weight: Tensor, bias: Tensor, inputs: str) -> str:
        """A layer whose weight [out, in] is stored as [in, out]: a product is all that it takes."""
        product = self.add("MatMul", inputs, self.weight(f"{name}.weight", weight.T))
        return self.add("Add", product, self.weight(f"{name}.bias", bias))

    def constant(self, value: npt.NDArray[np.generic]) -> str:
        """An initializer of the array's own type."""
        name = f"constant_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def write(
        self, path: Path, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> None:
        """Check the graph and write it; the same bytes for the same weights. Raises
        onnx.checker.ValidationError.
        """
        graph = helper.make_graph(self._nodes, name, inputs, outputs, self._initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="cosyserve"
        )
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString(deterministic=True))


def run(path: Path, inputs: Mapping[str, npt.NDArray[np.generic]]) -> Tensor:
    """The only output of the file in ONNX Runtime, on the CPU."""
    import onnxruntime

    (output,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, dict(inputs))
    return torch.from_numpy(output)
