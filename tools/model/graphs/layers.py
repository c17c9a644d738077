"""The layers that the flow's graphs are made of. Activations are time-major, [rows, time,
channels], as in the torch path.
"""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
from onnx import TensorProto

from cosyserve.spec import LOOKAHEAD_TOKENS
from tools.model.graphs.graph import END, Array, Graph, Precision

MASKED = -1.0e4
"""Added to the scores of keys that must not be seen: gone after the exponential, and a number in
every type.
"""
_FLOAT8_LARGEST = 448.0
_TANH_GELU = 0.044715


class LayerGraph(Graph):
    """A graph of layers, each from the tensors of its name.

    scales: largest magnitude of the input of each linear map, by name; with precision fp8 those
    maps multiply in 8 bits.
    """

    def __init__(
        self,
        name: str,
        tensors: Mapping[str, Array],
        precision: Precision = Precision.FP32,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(name, tensors, precision)
        self._scales = scales or {}

    def to_products(self, x: str) -> str:
        """Cast to the type of the products."""
        if self.precision is Precision.FP32:
            return x
        return self.node("Cast", [x], f"{x}.narrow", to=self.product_type)

    def to_full(self, x: str) -> str:
        """Cast back to float32."""
        if self.precision is Precision.FP32:
            return x
        return self.node("Cast", [x], f"{x}.full", to=TensorProto.FLOAT)

    def linear(self, x: str, matrix: Array, bias: Array | None, name: str) -> str:
        """x in the type of the products [..., in], matrix [out, in] -> [..., out] in that type."""
        dtype = self.product_dtype
        self.product_inputs[name] = x
        if name in self._scales:
            x, weight = self._eight_bits(x, matrix, name)
        else:
            weight = self.weight(f"{name}.weight", matrix.T.astype(dtype))
        product = self.node("MatMul", [x, weight], f"{name}.product")
        return (
            product
            if bias is None
            else self.node("Add", [product, self.weight(f"{name}.bias", bias.astype(dtype))], name)
        )

    def _eight_bits(self, x: str, matrix: Array, name: str) -> tuple[str, str]:
        """x and matrix through 8-bit floating point, one scale for each, which every TensorRT
        kernel for it takes.
        """
        dtype = self.product_dtype
        zero = self.weight("zero.float8", np.zeros((), ml_dtypes.float8_e4m3fn))
        step = self.weight(f"{name}.step", np.asarray(max(self._scales[name], 1e-6) / _FLOAT8_LARGEST).astype(dtype))
        x = self.node("QuantizeLinear", [x, step, zero], f"{name}.input.float8")
        x = self.node("DequantizeLinear", [x, step, zero], f"{name}.input")
        size = np.asarray(max(float(np.abs(matrix).max()), 1e-6) / _FLOAT8_LARGEST).astype(dtype)
        packed = (
            (matrix / size.astype(np.float32)).clip(-_FLOAT8_LARGEST, _FLOAT8_LARGEST).T.astype(ml_dtypes.float8_e4m3fn)
        )
        values = [self.weight(f"{name}.weight.float8", packed), self.weight(f"{name}.weight.step", size), zero]
        return x, self.node("DequantizeLinear", values, f"{name}.weight")

    def named_linear(self, x: str, name: str) -> str:
        """The linear map of weights `name`.weight and, if there is one, `name`.bias."""
        return self.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"), name)

    def full_linear(self, x: str, name: str) -> str:
        """The same in float32 whatever the precision; the bias must be there."""
        matrix = self.weight(f"{name}.weight", self.tensors[f"{name}.weight"].T)
        product = self.node("MatMul", [x, matrix], f"{name}.product")
        return self.node("Add", [product, self.weight(f"{name}.bias", self.tensors[f"{name}.bias"])], name)

    def norm(self, x: str, name: str, epsilon: float = 1e-5) -> str:
        """Layer norm over the channels, float32 in and out."""
        return self.node("LayerNormalization", [x, *self.own(name)], name, axis=-1, epsilon=epsilon, stash_type=1)

    def convolution(self, x: str, name: str, *, before: int) -> str:
        """Convolution over time as one matrix product, float32 in and out: [rows, time + taps - 1 -
        before, in] -> [rows, time, out].

        before: frames of zeros to put in front, taps - 1 for a causal one.
        """
        weight = self.tensors[f"{name}.weight"]
        taps = weight.shape[2]
        if before:
            x = self.node(
                "Pad", [x, self.integers(0, before, 0, 0, 0, 0), self.number(0.0)], f"{name}.padded", mode="constant"
            )
        x = self.to_products(x)
        parts = [self.slice(x, tap, tap - taps + 1 or END, 1, f"{name}.tap{tap}") for tap in range(taps)]
        joined = self.node("Concat", parts, f"{name}.taps", axis=2) if taps > 1 else x
        matrix = weight.transpose(0, 2, 1).reshape(weight.shape[0], -1)
        return self.to_full(self.linear(joined, matrix, self.tensors[f"{name}.bias"], name))

    def looked_ahead(self, x: str, name: str) -> str:
        """The look-ahead layer of weights `name`: embedded tokens and the three behind them,
        [streams, tokens + 3, width] -> [streams, tokens, width].
        """
        itself = self.layer("embed", self.slice(x, 0, -LOOKAHEAD_TOKENS, 1, "embedded.itself"))
        seen = self.node("LeakyRelu", [self.convolution(x, f"{name}.conv1", before=0)], "seen", alpha=0.01)
        smooth = self.convolution(seen, f"{name}.conv2", before=2)
        return self.layer("pre_lookahead", self.node("Add", [smooth, itself], "pre_lookahead"))

    def twice(self, x: str, width: int) -> str:
        """Every frame twice, [streams, time, width] -> [streams, 2 * time, width]."""
        column = self.node("Unsqueeze", [x, self.integers(2)], f"{x}.column")
        return self.node(
            "Reshape",
            [self.node("Concat", [column, column], f"{x}.pair", axis=2), self.integers(0, -1, width)],
            f"{x}.twice",
        )

    def split_heads(self, x: str, heads: int, width: int, name: str) -> list[str]:
        """Queries, keys and values: [rows, time, 3 * width] -> three [rows, heads, time, width /
        heads].
        """
        parts = []
        for part in self.split(x, [width] * 3, name):
            divided = self.node("Reshape", [part, self.integers(0, 0, heads, -1)], f"{part}.heads")
            parts.append(self.node("Transpose", [divided], f"{part}.by_head", perm=[0, 2, 1, 3]))
        return parts

    def attend(self, scores: str, values: str, name: str) -> str:
        """Scores [rows, heads, time, keys] and values [rows, heads, keys, width] -> [rows, time,
        heads * width].
        """
        shares = self.node("Softmax", [scores], f"{name}.shares", axis=-1)
        mixed = self.node("MatMul", [shares, values], f"{name}.mixed")
        mixed = self.node("Transpose", [mixed], f"{name}.by_time", perm=[0, 2, 1, 3])
        return self.node("Reshape", [mixed, self.integers(0, 0, -1)], f"{name}.joined")

    def bias_of(self, allowed: str, name: str) -> str:
        """bool -> 0 where true and MASKED where false, in the type of the products."""
        return self.to_products(self.node("Where", [allowed, self.number(0.0), self.number(MASKED)], name))

    def allowed(self, attention: str | None, mask: str, name: str) -> str:
        """bool [time, time] and mask float32 [rows, 1, time] of ones and zeros -> bool [rows, 1,
        time or 1, time].
        """
        real = self.node("Greater", [mask, self.number(0.0)], f"{name}.real")
        real = self.node("Unsqueeze", [real, self.integers(1)], f"{name}.keys")
        return real if attention is None else self.node("And", [attention, real], name)

    def silu(self, x: str, name: str) -> str:
        """x times its logistic function."""
        return self.node("Mul", [x, self.node("Sigmoid", [x], f"{name}.sigmoid")], name)

    def mish(self, x: str, name: str) -> str:
        """x tanh(softplus(x)), float32."""
        soft = self.node("Tanh", [self.node("Softplus", [x], f"{name}.softplus")], f"{name}.tanh")
        return self.node("Mul", [x, soft], name)

    def gelu(self, x: str, name: str) -> str:
        """x (1 + erf(x / sqrt 2)) / 2 in the type of the products."""
        turned = self.node("Mul", [x, self.number(0.5**0.5, "product")], f"{name}.scaled")
        erf = self.node("Add", [self.node("Erf", [turned], f"{name}.erf"), self.number(1.0, "product")], f"{name}.erf1")
        return self.node("Mul", [self.node("Mul", [x, erf], f"{name}.both"), self.number(0.5, "product")], name)

    def tanh_gelu(self, x: str, name: str) -> str:
        """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 in the type of the products."""
        # Without the cube, which leaves the range of 16-bit numbers earlier than the square.
        root = math.sqrt(2 / math.pi)
        square = self.node("Mul", [x, x], f"{name}.square")
        bent = self.node("Mul", [square, self.number(root * _TANH_GELU, "product")], f"{name}.bent")
        slope = self.node("Add", [bent, self.number(root, "product")], f"{name}.slope")
        tanh = self.node("Tanh", [self.node("Mul", [x, slope], f"{name}.inner")], f"{name}.tanh")
        share = self.node("Add", [tanh, self.number(1.0, "product")], f"{name}.share")
        both = self.node("Mul", [x, share], f"{name}.both")
        return self.node("Mul", [both, self.number(0.5, "product")], name)

    def modulated(self, x: str, shift: str, scale: str, width: int, name: str) -> str:
        """Layer norm over `width` channels without weights, scaled and shifted, float32."""
        ones = self.weight("ones", np.ones(width, np.float32))
        x = self.node("LayerNormalization", [x, ones], f"{name}.norm", axis=-1, epsilon=1e-6, stash_type=1)
        scale = self.node("Add", [scale, self.number(1.0)], f"{name}.scale")
        return self.node("Add", [self.node("Mul", [x, scale], f"{name}.scaled"), shift], f"{name}.shifted")
