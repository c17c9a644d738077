"""The flow's encoder as an ONNX graph (compatibility specification sections 4.1 to 4.3). Float32
throughout: a fortieth of the work, a norm whose epsilon of 1e-12 is no half-precision number, and
activations scaled by the square root of the width.

| name | type, shape | what | |---|---|---| | tokens | int32 [streams, tokens + 3] | ids of the
prompt and of what is spoken, then up to 3 of look-ahead, then padding | | known | float32 [streams,
tokens + 3] | 1 where there is an id, 0 for missing look-ahead and padding | | mask | float32
[streams, 1, tokens] | 1 for a token that is encoded, 0 for its look-ahead and padding | | attention
| bool [tokens, tokens] | whether a query may see a key, before the upsampling | | attention_frames
| bool [2 * tokens, 2 * tokens] | the same behind it | | positions | float32 [2 * tokens, width] | a
row of zeros, then sinusoids of the distances tokens - 1 down to 1 - tokens | | positions_frames |
float32 [4 * tokens, width] | the same for frames | | mu | float32 [streams, 80, 2 * tokens] | |

The free lengths are called `tokens`, `seen` (tokens + 3), `frames` (2 * tokens), `distances` and
`frame_distances`.
"""

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from cosyserve.spec import MEL_BINS
from services.token2wav.flow.unet.front import FrontConfig
from tools.model.graphs.graph import END, Array
from tools.model.graphs.layers import LayerGraph

LOOK_AHEAD = "encoder.pre_lookahead_layer"


class EncoderGraph(LayerGraph):
    """tensors: those of `flow.pt`."""

    def __init__(self, tensors: Mapping[str, Array], config: FrontConfig) -> None:
        super().__init__("encoder", tensors)
        self._width, self._heads = config.encoder_width, config.encoder_heads
        self._compute(config)

    def _compute(self, config: FrontConfig) -> None:
        self.inputs({
            "tokens": (TensorProto.INT32, ("streams", "seen")),
            "known": (TensorProto.FLOAT, ("streams", "seen")),
            "mask": (TensorProto.FLOAT, ("streams", 1, "tokens")),
            "attention": (TensorProto.BOOL, ("tokens", "tokens")),
            "attention_frames": (TensorProto.BOOL, ("frames", "frames")),
            "positions": (TensorProto.FLOAT, ("distances", self._width)),
            "positions_frames": (TensorProto.FLOAT, ("frame_distances", self._width)),
        })  # fmt: skip
        x, bias = self.looked_ahead(self._embedded(), LOOK_AHEAD), self._bias("mask", "attention", "tokens")
        for at in range(config.encoder_layers):
            x = self._conformer(x, f"encoder.encoders.{at}", bias, "positions")
        x = self.convolution(self.twice(x, self._width), "encoder.up_layer.conv", before=4)
        x = self._scaled(x, "encoder.up_embed")
        column = self.node("Unsqueeze", ["mask", self.integers(3)], "mask.column")
        pair = self.node("Concat", [column, column], "mask.pair", axis=3)
        mask = self.node("Reshape", [pair, self.integers(0, 0, -1)], "mask.frames")
        bias = self._bias(mask, "attention_frames", "frames")
        for at in range(config.encoder_upsampled_layers):
            x = self._conformer(x, f"encoder.up_encoders.{at}", bias, "positions_frames")
        mu = self._projected(x)
        self.output("mu", self.node("Transpose", [mu], "mu.bins", perm=[0, 2, 1]), ("streams", MEL_BINS, "frames"))

    def _embedded(self) -> str:
        """Embedded tokens and their look-ahead, [streams, tokens + 3, width]."""
        table = self.weight("input_embedding.weight", self.tensors["input_embedding.weight"])
        x = self._scaled(self.node("Gather", [table, "tokens"], "ids", axis=0), "encoder.embed")
        return self.node("Mul", [x, self.node("Unsqueeze", ["known", self.integers(2)], "known.column")], "embedded")

    def _projected(self, x: str) -> str:
        """What the last conformer hands on -> mu, time-major."""
        return self.named_linear(self.layer("after_norm", self.norm(x, "encoder.after_norm")), "encoder_proj")

    def _scaled(self, x: str, name: str) -> str:
        x = self.norm(self.named_linear(x, f"{name}.out.0"), f"{name}.out.1")
        return self.node("Mul", [x, self.number(math.sqrt(self._width))], f"{name}.scaled")

    def _bias(self, mask: str, attention: str, name: str) -> str:
        return self.bias_of(self.allowed(attention, mask, f"{name}.allowed"), f"{name}.bias")

    def _conformer(self, x: str, name: str, bias: str, positions: str) -> str:
        attended = self._attention(self.norm(x, f"{name}.norm_mha", 1e-12), f"{name}.self_attn", bias, positions)
        x = self.node("Add", [x, attended], f"{name}.attended")
        fed = self.silu(
            self.named_linear(self.norm(x, f"{name}.norm_ff", 1e-12), f"{name}.feed_forward.w_1"), f"{name}.fed"
        )
        return self.layer(
            name.removeprefix("encoder."),
            self.node("Add", [x, self.named_linear(fed, f"{name}.feed_forward.w_2")], name),
        )

    def _attention(self, x: str, name: str, bias: str, positions: str) -> str:
        matrix, biases = (
            np.concatenate([self.tensors[f"{name}.linear_{part}.{kind}"] for part in "qkv"])
            for kind in ("weight", "bias")
        )
        joined = self.linear(x, matrix, biases, f"{name}.linear_qkv")
        queries, keys, values = self.split_heads(joined, self._heads, self._width, f"{name}.qkv")
        asked = [
            self.node(
                "Add",
                [queries, self.weight(f"{name}.pos_bias_{kind}", self.tensors[f"{name}.pos_bias_{kind}"][:, None])],
                f"{name}.{kind}",
            )
            for kind in "uv"
        ]
        keys, values = self._with_past(keys, values, name)
        keys = self.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        content = self.node("MatMul", [asked[0], keys], f"{name}.content")
        score = self.node("Add", [content, self._distance(asked[1], name, positions, content)], f"{name}.summed")
        score = self.node("Mul", [score, self.number((self._width // self._heads) ** -0.5)], f"{name}.scaled")
        score = self.node("Add", [score, bias], f"{name}.scores")
        return self.named_linear(self.attend(score, values, name), f"{name}.linear_out")

    def _with_past(self, keys: str, values: str, name: str) -> tuple[str, str]:
        """Keys and values that an attention sees, given those of its own input, [streams, heads,
        time, width].
        """
        return keys, values

    def _distance(self, asked: str, name: str, positions: str, like: str) -> str:
        """Scores by distance, brought from [.., time, time + keys] of falling distance behind a
        column of zeros to [.., time, keys].

        In row-major memory, without its first `time` numbers, a row is one shorter than before: row
        i then starts time - 1 - i columns in.
        """
        table = self.linear(positions, self.tensors[f"{name}.linear_pos.weight"], None, f"{name}.linear_pos")
        table = self.node("Reshape", [table, self.integers(0, self._heads, -1)], f"{name}.positions")
        table = self.node("Transpose", [table], f"{name}.distances", perm=[1, 2, 0])
        falling = self.node("MatMul", [asked, table], f"{name}.falling")
        shape = self.node("Shape", [like], f"{name}.shape")
        time = self.node("Gather", [shape, self.integers(2)], f"{name}.time", axis=0)
        keys, both = self._lengths(shape, time, name)
        rows = self.node(
            "Concat",
            [self.integers(0, 0), time, self.node("Sub", [both, self.integers(1)], f"{name}.shorter")],
            f"{name}.rows",
            axis=0,
        )
        flat = self.node("Reshape", [falling, self.integers(0, 0, -1)], f"{name}.flat")
        flat = self.slice(flat, time, END, 2, f"{name}.shifted")
        return self.slice(self.node("Reshape", [flat, rows], f"{name}.lined"), 0, keys, 3, f"{name}.of_each_key")

    def _lengths(self, shape: str, time: str, name: str) -> tuple[str, str]:
        """The number of keys, and of time and keys together, int64 [1], of scores of this shape."""
        return time, self.node("Mul", [time, self.integers(2)], f"{name}.time2")
