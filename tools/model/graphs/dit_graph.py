"""CosyVoice3's flow as ONNX graphs (compatibility specification of CosyVoice3, section 4): the
layers in front of its estimator, and the estimator, a diffusion transformer.

The position convolutions, a fiftieth of the work, stay float32, as do the rotary angles.
"""

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from cosyserve.spec import MEL_BINS
from services.token2wav.flow.dit.weights import (
    BLOCK_MODULATIONS,
    FREQUENCIES,
    POSITION_GROUPS,
    POSITION_TAPS,
    TIME_SINUSOIDS,
    DitConfig,
)
from tools.model.graphs.graph import Array
from tools.model.graphs.layers import LayerGraph
from tools.model.graphs.velocity_graph import VelocityGraph


class LookAheadGraph(LayerGraph):
    """What stands in front of the estimator, float32 (sections 4.1 and 4.2). tensors: those of
    `flow.pt`.

    | name | type, shape | what |
    |---|---|---|
    | tokens | int32 [streams, seen] | speech tokens and the three behind them, any id for none |
    | known | float32 [streams, seen] | 1 for a token that exists, 0 for none |
    | mu | float32 [streams, 80, 2 * tokens] | the estimator's condition |
    """

    def __init__(self, tensors: Mapping[str, Array], config: DitConfig) -> None:
        super().__init__("encoder", tensors)
        self.inputs({
            "tokens": (TensorProto.INT32, ("streams", "seen")),
            "known": (TensorProto.FLOAT, ("streams", "seen")),
        })  # fmt: skip
        table = self.weight("input_embedding.weight", self.tensors["input_embedding.weight"])
        x = self.node("Gather", [table, "tokens"], "ids", axis=0)
        x = self.node("Mul", [x, self.node("Unsqueeze", ["known", self.integers(2)], "known.column")], "embedded")
        x = self.looked_ahead(x, "pre_lookahead_layer")
        mu = self.twice(x, MEL_BINS)
        self.output("mu", self.node("Transpose", [mu], "mu.bins", perm=[0, 2, 1]), ("streams", MEL_BINS, "frames"))


class DitGraph(VelocityGraph):
    """The estimator (sections 4.3 and 4.4). config: `DitConfig`."""

    @property
    def largest_inputs_needed(self) -> dict[str, str]:
        """The linear maps that multiply in 8 bits with precision fp8, each with the tensor whose
        largest magnitude it needs.
        """
        return {name: value for name, value in self.product_inputs.items() if ".attn." in name or ".ff." in name}

    def _network(self) -> str:
        # The checkpoint's order.
        joined = self._side_by_side("x", "cond", "mu", "spks")
        cosine, sine = self._rotation(joined)
        time = self._time()
        x = self._positioned(
            self.to_full(self.named_linear(self.to_products(joined), "input_embed.proj")), "input_embed"
        )
        for at in range(self._config.depth):
            x = self._block(x, time, cosine, sine, f"transformer_blocks.{at}")
        scale, shift = self._modulations(time, "norm_out.linear", 2)
        x = self.to_products(self.modulated(x, shift, scale, self._config.width, "norm_out"))
        x = self.to_full(self.named_linear(x, "proj_out"))
        return self.node("Transpose", [x], "velocity", perm=[0, 2, 1])

    def _time(self) -> str:
        """SiLU of the time embedding, [rows, 1, width] in the type of the products."""
        half = TIME_SINUSOIDS // 2
        # As the torch path rounds: the exponent in float32, its power once.
        exponent = np.arange(half, dtype=np.float32) * np.float32(-(math.log(10000.0) / (half - 1)))
        rate = np.exp(exponent.astype(np.float64)).astype(np.float32)
        embedding = self._time_embedding(rate, "time_embed.time_mlp.0", "time_embed.time_mlp.2", "time_embed")
        time = self.node("Unsqueeze", [self.silu(embedding, "time.silu"), self.integers(1)], "time")
        return self.to_products(time)

    def _rotation(self, joined: str) -> tuple[str, str]:
        """Cosine and sine of the first head's angles, [frames, pairs] in the type of the
        products.
        """
        shape = self.node("Shape", [joined], "frames.shape")
        frames = self.node("Gather", [shape, self.weight("index.1", np.asarray(1, np.int64))], "frames", axis=0)
        zero, one = (self.weight(f"index.{at}", np.asarray(at, np.int64)) for at in (0, 1))
        places = self.node("Range", [zero, frames, one], "places")
        places = self.node("Cast", [places], "places.full", to=TensorProto.FLOAT)
        places = self.node("Unsqueeze", [places, self.integers(1)], "places.column")
        angles = self.node("Mul", [places, self.weight(FREQUENCIES, self.tensors[FREQUENCIES])], "angles")
        return (
            self.to_products(self.node("Cos", [angles], "angles.cos")),
            self.to_products(self.node("Sin", [angles], "angles.sin")),
        )

    def _positioned(self, x: str, name: str) -> str:
        """x and its position by two causal convolutions in groups of channels, float32."""
        position = self.node("Transpose", [x], f"{name}.bins", perm=[0, 2, 1])
        for at in (1, 2):
            part = f"{name}.conv_pos_embed.conv{at}.0"
            padding = [0, 0, POSITION_TAPS - 1, 0, 0, 0]
            padded = self.node("Pad", [position, self.integers(*padding), self.number(0.0)], f"{part}.padded")
            position = self.node("Conv", [padded, *self.own(part)], f"{part}.convolved", group=POSITION_GROUPS)
            position = self.mish(position, f"{part}.mish")
        position = self.node("Transpose", [position], f"{name}.position", perm=[0, 2, 1])
        return self.layer(name, self.node("Add", [position, x], name))

    def _modulations(self, time: str, name: str, count: int) -> list[str]:
        """`count` vectors float32 [rows, 1, width] that the time makes by a linear map."""
        made = self.to_full(self.named_linear(time, name))
        return self.split(made, [self._config.width] * count, f"{name}.parts")

    def _block(self, x: str, time: str, cosine: str, sine: str, name: str) -> str:
        parts = self._modulations(time, f"{name}.attn_norm.linear", BLOCK_MODULATIONS)
        shift, scale, gate, feed_shift, feed_scale, feed_gate = parts
        width = self._config.width
        attended = self.modulated(x, shift, scale, width, f"{name}.attn_norm")
        attended = self.to_full(self._attention(self.to_products(attended), cosine, sine, f"{name}.attn"))
        attended = self.node("Mul", [self._real(attended, f"{name}.attn.real"), gate], f"{name}.attn.gated")
        x = self.node("Add", [x, attended], f"{name}.attended")
        fed = self.to_products(self.modulated(x, feed_shift, feed_scale, width, f"{name}.ff_norm"))
        fed = self.tanh_gelu(self.named_linear(fed, f"{name}.ff.ff.0.0"), f"{name}.ff.gelu")
        fed = self.to_full(self.named_linear(fed, f"{name}.ff.ff.2"))
        fed = self.node("Mul", [fed, feed_gate], f"{name}.ff.gated")
        return self.layer(name, self.node("Add", [x, fed], name))

    def _attention(self, x: str, cosine: str, sine: str, name: str) -> str:
        heads, width = self._config.heads, self._config.head_width
        matrix, bias = (
            np.concatenate([self._pairs_apart(self.tensors[f"{name}.to_{part}.{kind}"], part) for part in "qkv"])
            for kind in ("weight", "bias")
        )
        joined = self.linear(x, matrix, bias, f"{name}.to_qkv")
        queries, keys, values = self.split_heads(joined, heads, heads * width, f"{name}.qkv")
        queries, keys = (self._turned(part, cosine, sine) for part in (queries, keys))
        keys = self.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        queries = self.node("Mul", [queries, self.number(width**-0.5, "product")], f"{name}.queries")
        content = self.node("MatMul", [queries, keys], f"{name}.content")
        scores = self.node("Add", [content, self._bias], f"{name}.scores")
        return self.named_linear(self.attend(scores, values, name), f"{name}.to_out.0")

    def _pairs_apart(self, rows: np.ndarray, part: str) -> np.ndarray:
        """The map's rows with the pairs of the first head's queries and keys, which are turned
        together, half a head apart instead of side by side. Their products stay the same.
        """
        if part == "v":
            return rows
        first = np.arange(self._config.head_width)
        return np.concatenate([rows[first[0::2]], rows[first[1::2]], rows[self._config.head_width :]])

    def _turned(self, heads: str, cosine: str, sine: str) -> str:
        """Queries or keys [rows, heads, frames, width], the first head rotated."""
        width, count = self._config.head_width, self._config.heads
        first, others = (
            (heads, None)
            if count == 1
            else (self.slice(heads, 0, 1, 1, f"{heads}.first"), self.slice(heads, 1, count, 1, f"{heads}.others"))
        )
        left, right = self.split(first, [width // 2] * 2, f"{heads}.pairs")

        def product(a: str, b: str, name: str) -> str:
            return self.node("Mul", [a, b], f"{heads}.{name}")

        turned = [
            self.node("Sub", [product(left, cosine, "lc"), product(right, sine, "rs")], f"{heads}.left"),
            self.node("Add", [product(right, cosine, "rc"), product(left, sine, "ls")], f"{heads}.right"),
        ]
        first = self.node("Concat", turned, f"{heads}.turned", axis=3)
        return first if others is None else self.node("Concat", [first, others], f"{heads}.rotated", axis=1)
