"""The layers that the flow's graphs are made of. Activations are time-major, [rows, time,
channels], as in the torch path.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tools.model.graphs.graph import Array, Graph, Precision

MASKED = -1.0e4
"""Added to the scores of keys that must not be seen: gone after the exponential, and a number in
every type.
"""
_FLOAT8_LARGEST = 448.0


class Layers:
    """Writes layers into `graph` from named weights.

    scales: largest magnitude of the input of each linear map, by name; with precision fp8 those
    maps multiply in 8 bits.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, Array], scales: Mapping[str, float] | None = None) -> None:
        self.graph = graph
        self._tensors = tensors
        self._scales = scales or {}

    def tensor(self, name: str) -> Array:
        return self._tensors[name]

    def to_products(self, x: str) -> str:
        """Cast to the type of the products."""
        graph = self.graph
        if graph.precision is Precision.FP32:
            return x
        return graph.node("Cast", [x], f"{x}.narrow", to=graph.product_type)

    def to_full(self, x: str) -> str:
        """Cast back to float32."""
        if self.graph.precision is Precision.FP32:
            return x
        return self.graph.node("Cast", [x], f"{x}.full", to=TensorProto.FLOAT)

    def linear(self, x: str, matrix: Array, bias: Array | None, name: str) -> str:
        """x in the type of the products [..., in], matrix [out, in] -> [..., out] in that type."""
        graph, dtype = self.graph, self.graph.product_dtype
        graph.product_inputs[name] = x
        if name in self._scales:
            x, weight = self._eight_bits(x, matrix, name)
        else:
            weight = graph.weight(f"{name}.weight", matrix.T.astype(dtype))
        product = graph.node("MatMul", [x, weight], f"{name}.product")
        return (
            product
            if bias is None
            else graph.node("Add", [product, graph.weight(f"{name}.bias", bias.astype(dtype))], name)
        )

    def full_linear(self, x: str, matrix: Array, bias: Array | None, name: str) -> str:
        """The same in float32 whatever the precision."""
        graph = self.graph
        product = graph.node("MatMul", [x, graph.weight(f"{name}.weight", matrix.T)], f"{name}.product")
        return product if bias is None else graph.node("Add", [product, graph.weight(f"{name}.bias", bias)], name)

    def _eight_bits(self, x: str, matrix: Array, name: str) -> tuple[str, str]:
        """x and matrix through 8-bit floating point, one scale for each, which every TensorRT
        kernel for it takes.
        """
        graph, dtype = self.graph, self.graph.product_dtype
        zero = graph.weight("zero.float8", np.zeros((), ml_dtypes.float8_e4m3fn))
        step = graph.weight(f"{name}.step", np.asarray(max(self._scales[name], 1e-6) / _FLOAT8_LARGEST).astype(dtype))
        x = graph.node("QuantizeLinear", [x, step, zero], f"{name}.input.float8")
        x = graph.node("DequantizeLinear", [x, step, zero], f"{name}.input")
        size = np.asarray(max(float(np.abs(matrix).max()), 1e-6) / _FLOAT8_LARGEST).astype(dtype)
        packed = (
            (matrix / size.astype(np.float32)).clip(-_FLOAT8_LARGEST, _FLOAT8_LARGEST).T.astype(ml_dtypes.float8_e4m3fn)
        )
        values = [graph.weight(f"{name}.weight.float8", packed), graph.weight(f"{name}.weight.step", size), zero]
        return x, graph.node("DequantizeLinear", values, f"{name}.weight")

    def named_linear(self, x: str, name: str) -> str:
        """The linear map of weights `name`.weight and, if there is one, `name`.bias."""
        return self.linear(x, self.tensor(f"{name}.weight"), self._tensors.get(f"{name}.bias"), name)

    def norm(self, x: str, name: str, epsilon: float = 1e-5) -> str:
        """Layer norm over the channels, float32 in and out."""
        graph = self.graph
        weights = [graph.weight(f"{name}.{kind}", self.tensor(f"{name}.{kind}")) for kind in ("weight", "bias")]
        return graph.node("LayerNormalization", [x, *weights], name, axis=-1, epsilon=epsilon, stash_type=1)

    def convolution(self, x: str, name: str, *, before: int) -> str:
        """Convolution over time as one matrix product, float32 in and out: [rows, time + taps - 1 -
        before, in] -> [rows, time, out].

        before: frames of zeros to put in front, taps - 1 for a causal one.
        """
        graph, weight = self.graph, self.tensor(f"{name}.weight")
        taps = weight.shape[2]
        if before:
            x = graph.node(
                "Pad", [x, graph.integers(0, before, 0, 0, 0, 0), graph.number(0.0)], f"{name}.padded", mode="constant"
            )
        x = self.to_products(x)
        parts = []
        for tap in range(taps):
            end = tap - taps + 1 or np.iinfo(np.int32).max
            # start, end, axis
            limits = [graph.integers(tap), graph.integers(int(end)), graph.integers(1)]
            parts.append(graph.node("Slice", [x, *limits], f"{name}.tap{tap}"))
        joined = graph.node("Concat", parts, f"{name}.taps", axis=2) if taps > 1 else x
        matrix = weight.transpose(0, 2, 1).reshape(weight.shape[0], -1)
        return self.to_full(self.linear(joined, matrix, self.tensor(f"{name}.bias"), name))

    def heads(self, x: str, heads: int, name: str) -> str:
        """[rows, time, heads * width] -> [rows, heads, time, width]."""
        x = self.graph.node("Reshape", [x, self.graph.integers(0, 0, heads, -1)], f"{name}.heads")
        return self.graph.node("Transpose", [x], f"{name}.by_head", perm=[0, 2, 1, 3])

    def attend(self, scores: str, values: str, name: str) -> str:
        """Scores [rows, heads, time, keys] and values [rows, heads, keys, width] -> [rows, time,
        heads * width].
        """
        graph = self.graph
        shares = graph.node("Softmax", [scores], f"{name}.shares", axis=-1)
        mixed = graph.node("MatMul", [shares, values], f"{name}.mixed")
        mixed = graph.node("Transpose", [mixed], f"{name}.by_time", perm=[0, 2, 1, 3])
        return graph.node("Reshape", [mixed, graph.integers(0, 0, -1)], f"{name}.joined")

    def bias_of(self, allowed: str, name: str) -> str:
        """bool -> 0 where true and MASKED where false, in the type of the products."""
        graph = self.graph
        return self.to_products(graph.node("Where", [allowed, graph.number(0.0), graph.number(MASKED)], name))

    def allowed(self, attention: str | None, mask: str, name: str) -> str:
        """bool [time, time] and mask float32 [rows, 1, time] of ones and zeros -> bool [rows, 1,
        time or 1, time].
        """
        graph = self.graph
        real = graph.node("Greater", [mask, graph.number(0.0)], f"{name}.real")
        real = graph.node("Unsqueeze", [real, graph.integers(1)], f"{name}.keys")
        return real if attention is None else graph.node("And", [attention, real], name)

    def silu(self, x: str, name: str) -> str:
        """x times its logistic function."""
        return self.graph.node("Mul", [x, self.graph.node("Sigmoid", [x], f"{name}.sigmoid")], name)

    def mish(self, x: str, name: str) -> str:
        """x tanh(softplus(x)), float32."""
        soft = self.graph.node("Tanh", [self.graph.node("Softplus", [x], f"{name}.softplus")], f"{name}.tanh")
        return self.graph.node("Mul", [x, soft], name)

    def gelu(self, x: str, name: str) -> str:
        """x (1 + erf(x / sqrt 2)) / 2 in the type of the products."""
        graph = self.graph
        turned = graph.node("Mul", [x, graph.number(0.5**0.5, "product")], f"{name}.scaled")
        erf = graph.node(
            "Add", [graph.node("Erf", [turned], f"{name}.erf"), graph.number(1.0, "product")], f"{name}.erf1"
        )
        return graph.node("Mul", [graph.node("Mul", [x, erf], f"{name}.both"), graph.number(0.5, "product")], name)
