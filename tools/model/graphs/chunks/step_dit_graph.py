"""One Euler step of Step-Audio2's DiT over one block of frames as an ONNX graph.

Rows are streams times two, the one with the condition and the one without. What the time
contributes comes from outside, where it is computed once for all blocks.

| name | type, shape | what |
|---|---|---|
| inputs | float32 [rows, frames, 320] | x, mu, speaker, condition side by side |
| times | float32 [1, 1, (9 * depth + 2) * width] | modulations of all blocks and of the last norm |
| past | float32 [2 * depth, rows, heads, past, head width] | keys and values, aligned to the end |
| columns | float32 [rows, 2, 2 * depth * width] | kept inputs of both convolutions of each block |
| seen | bool [rows, past + frames] | whether a key exists |
| tail | float32 [rows, 2, frames + 2] | 1 where the last columns are |
| velocity | float32 [rows, frames, 80] | |
| new_past, new_columns | | what is kept of the block |

Products and attention are in the type of the precision; state, norms and sums are float32.
"""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from cosyserve.errors import ModelError
from cosyserve.spec import MEL_BINS
from services.token2wav.engines.chunks.shapes import BLOCK_REACH, modulations
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS, StepDitConfig
from tools.model.graphs.chunks.kept_state import KeptColumns, KeptKeys
from tools.model.graphs.graph import Array, Precision
from tools.model.graphs.layers import LayerGraph


class StepDitGraph(LayerGraph):
    """tensors: the estimator's, names without prefix. Raises ModelError for 8-bit products, whose
    scales are not measured for this network.
    """

    def __init__(
        self,
        tensors: Mapping[str, Array],
        config: StepDitConfig,
        precision: Precision = Precision.FP32,
        *,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        if precision is Precision.FP8:
            raise ModelError("the flow of Step-Audio2 has no scales for 8-bit products; choose another --precision")
        super().__init__("estimator", tensors, precision, scales)
        self._config = config
        width, heads, depth = config.width, config.heads, config.depth
        kept = 2 * depth
        self.inputs({
            "inputs": (TensorProto.FLOAT, ("rows", "frames", 4 * MEL_BINS)),
            "times": (TensorProto.FLOAT, (1, 1, modulations(config))),
            "past": (TensorProto.FLOAT, (kept, "rows", heads, "past", config.head_width)),
            "columns": (TensorProto.FLOAT, ("rows", BLOCK_REACH, kept * width)),
            "seen": (TensorProto.BOOL, ("rows", "keys")),
            "tail": (TensorProto.FLOAT, ("rows", BLOCK_REACH, "joined")),
        })  # fmt: skip
        self._keys, self._columns = KeptKeys(self, "past"), KeptColumns(self, "columns", "tail")
        seen = self.node("Unsqueeze", ["seen", self.integers(1, 2)], "seen.keys")
        self._bias = self.bias_of(seen, "bias")
        parts = self.split("times", [width] * (BLOCK_MODULATIONS * depth + 2), "times.parts")
        x = self.layer("in_proj", self.to_full(self.named_linear(self.to_products("inputs"), "in_proj")))
        for at in range(depth):
            x = self._block(x, parts[BLOCK_MODULATIONS * at :][:BLOCK_MODULATIONS], f"blocks.{at}")
        shift, scale = parts[-2:]
        x = self.to_products(self.modulated(x, shift, scale, width, "final_layer.norm"))
        velocity = self.to_full(self.named_linear(x, "final_layer.linear"))
        self.output("velocity", velocity, ("rows", "frames", MEL_BINS))
        self._keys.output("rows", heads, "frames", config.head_width)
        self._columns.output("rows", BLOCK_REACH)

    def _block(self, x: str, parts: list[str], name: str) -> str:
        """Attention, convolution and feed-forward; `parts` has the attention's modulation first,
        then the feed-forward's, then the convolution's.
        """
        for part, names, computed in (
            ("attn", parts[:3], self._attention),
            ("conv", parts[6:], self._convolutions),
            ("mlp", parts[3:6], self._feed_forward),
        ):
            shift, scale, gate = names
            made = computed(
                self.modulated(x, shift, scale, self._config.width, f"{name}.{part}.norm"), f"{name}.{part}"
            )
            x = self.node("Add", [x, self.node("Mul", [made, gate], f"{name}.{part}.gated")], f"{name}.{part}.added")
        return self.layer(name, x)

    def _attention(self, x: str, name: str) -> str:
        heads, width = self._config.heads, self._config.head_width
        matrix, bias = (
            np.concatenate([self.tensors[f"{name}.to_{part}.{kind}"] for part in "qkv"]) for kind in ("weight", "bias")
        )
        joined = self.linear(self.to_products(x), matrix, bias, f"{name}.to_qkv")
        queries, keys, values = self.split_heads(joined, heads, heads * width, f"{name}.qkv")
        queries, keys = (
            self.to_products(self.norm(self.to_full(part), f"{name}.{which}_norm"))
            for part, which in ((queries, "q"), (keys, "k"))
        )
        keys, values = self._keys.extended(keys, values, name)
        keys = self.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        queries = self.node("Mul", [queries, self.number(width**-0.5, "product")], f"{name}.queries")
        scores = self.node(
            "Add", [self.node("MatMul", [queries, keys], f"{name}.content"), self._bias], f"{name}.scores"
        )
        return self.to_full(self.named_linear(self.attend(scores, values, name), f"{name}.proj"))

    def _convolutions(self, x: str, name: str) -> str:
        first, second = (f"{name}.block.{at}" for at in (1, 6))
        x = self.convolution(self._columns.in_front(x, self._config.width, first), first, before=0)
        x = self.mish(self.norm(x, f"{name}.block.3"), f"{name}.mish")
        return self.convolution(self._columns.in_front(x, self._config.width, second), second, before=0)

    def _feed_forward(self, x: str, name: str) -> str:
        wide = self.tanh_gelu(self.named_linear(self.to_products(x), f"{name}.fc1"), f"{name}.gelu")
        return self.to_full(self.named_linear(wide, f"{name}.fc2"))
