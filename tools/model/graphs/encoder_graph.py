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

from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_BINS
from services.token2wav.flow.encoder import UPSAMPLED_LAYERS
from services.token2wav.flow.weights import FlowConfig
from tools.model.graphs.graph import Array, Graph
from tools.model.graphs.layers import Layers

_END = int(np.iinfo(np.int32).max)


def encoder_graph(tensors: Mapping[str, Array], config: FlowConfig) -> Graph:
    """tensors: those of `flow.pt`, float32, under their own names."""
    return _Encoder(tensors, config).graph


class _Encoder:
    def __init__(self, tensors: Mapping[str, Array], config: FlowConfig) -> None:
        self.graph = graph = Graph("encoder")
        self._layers = Layers(graph, tensors)
        self._width, self._heads = config.encoder_width, config.encoder_heads
        graph.input("tokens", TensorProto.INT32, ("streams", "seen"))
        graph.input("known", TensorProto.FLOAT, ("streams", "seen"))
        graph.input("mask", TensorProto.FLOAT, ("streams", 1, "tokens"))
        graph.input("attention", TensorProto.BOOL, ("tokens", "tokens"))
        graph.input("attention_frames", TensorProto.BOOL, ("frames", "frames"))
        graph.input("positions", TensorProto.FLOAT, ("distances", self._width))
        graph.input("positions_frames", TensorProto.FLOAT, ("frame_distances", self._width))
        x = self._looked_ahead()
        x = self._stack(
            x,
            [f"encoder.encoders.{at}" for at in range(config.encoder_layers)],
            self._bias("mask", "attention", "tokens"),
            "positions",
        )
        x = self._layers.convolution(self._twice(x), "encoder.up_layer.conv", before=4)
        x = self._scaled(x, "encoder.up_embed")
        mask = graph.node("Reshape", [self._twice_mask(), graph.integers(0, 0, -1)], "mask.frames")
        names = [f"encoder.up_encoders.{at}" for at in range(UPSAMPLED_LAYERS)]
        x = self._stack(x, names, self._bias(mask, "attention_frames", "frames"), "positions_frames")
        x = graph.layer("after_norm", self._layers.norm(x, "encoder.after_norm"))
        mu = self._layers.named_linear(x, "encoder_proj")
        graph.output("mu", graph.node("Transpose", [mu], "mu.bins", perm=[0, 2, 1]), ("streams", MEL_BINS, "frames"))

    def _looked_ahead(self) -> str:
        """Embedded tokens that have seen the three behind them, [streams, tokens, width]."""
        graph, layers = self.graph, self._layers
        table = graph.weight("input_embedding.weight", layers.tensor("input_embedding.weight"))
        x = self._scaled(graph.node("Gather", [table, "tokens"], "ids", axis=0), "encoder.embed")
        x = graph.node("Mul", [x, graph.node("Unsqueeze", ["known", graph.integers(2)], "known.column")], "embedded")
        limits = [graph.integers(0), graph.integers(-LOOKAHEAD_TOKENS), graph.integers(1)]
        itself = graph.layer("embed", graph.node("Slice", [x, *limits], "embedded.itself"))
        seen = graph.node(
            "LeakyRelu", [layers.convolution(x, "encoder.pre_lookahead_layer.conv1", before=0)], "seen", alpha=0.01
        )
        smooth = layers.convolution(seen, "encoder.pre_lookahead_layer.conv2", before=2)
        return graph.layer("pre_lookahead", graph.node("Add", [smooth, itself], "pre_lookahead"))

    def _scaled(self, x: str, name: str) -> str:
        x = self._layers.norm(self._layers.named_linear(x, f"{name}.out.0"), f"{name}.out.1")
        return self.graph.node("Mul", [x, self.graph.number(math.sqrt(self._width))], f"{name}.scaled")

    def _twice(self, x: str) -> str:
        """Every frame twice, [streams, 2 * time, width]."""
        graph = self.graph
        column = graph.node("Unsqueeze", [x, graph.integers(2)], f"{x}.column")
        return graph.node(
            "Reshape",
            [graph.node("Concat", [column, column], f"{x}.pair", axis=2), graph.integers(0, -1, self._width)],
            f"{x}.twice",
        )

    def _twice_mask(self) -> str:
        column = self.graph.node("Unsqueeze", ["mask", self.graph.integers(3)], "mask.column")
        return self.graph.node("Concat", [column, column], "mask.pair", axis=3)

    def _bias(self, mask: str, attention: str, name: str) -> str:
        return self._layers.bias_of(self._layers.allowed(attention, mask, f"{name}.allowed"), f"{name}.bias")

    def _stack(self, x: str, names: list[str], bias: str, positions: str) -> str:
        for name in names:
            x = self._conformer(x, name, bias, positions)
        return x

    def _conformer(self, x: str, name: str, bias: str, positions: str) -> str:
        graph, layers = self.graph, self._layers
        attended = self._attention(layers.norm(x, f"{name}.norm_mha", 1e-12), f"{name}.self_attn", bias, positions)
        x = graph.node("Add", [x, attended], f"{name}.attended")
        fed = layers.silu(
            layers.named_linear(layers.norm(x, f"{name}.norm_ff", 1e-12), f"{name}.feed_forward.w_1"), f"{name}.fed"
        )
        return graph.layer(
            name.removeprefix("encoder."),
            graph.node("Add", [x, layers.named_linear(fed, f"{name}.feed_forward.w_2")], name),
        )

    def _attention(self, x: str, name: str, bias: str, positions: str) -> str:
        graph, layers, heads = self.graph, self._layers, self._heads
        joined = [
            np.concatenate([layers.tensor(f"{name}.linear_{part}.{kind}") for part in "qkv"])
            for kind in ("weight", "bias")
        ]
        parts = graph.split(
            layers.linear(x, joined[0], joined[1], f"{name}.linear_qkv"), [self._width] * 3, f"{name}.qkv"
        )
        queries, keys, values = (layers.heads(part, heads, part) for part in parts)
        asked = [
            graph.node(
                "Add",
                [queries, graph.weight(f"{name}.pos_bias_{kind}", layers.tensor(f"{name}.pos_bias_{kind}")[:, None])],
                f"{name}.{kind}",
            )
            for kind in "uv"
        ]
        keys = graph.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        content = graph.node("MatMul", [asked[0], keys], f"{name}.content")
        score = graph.node("Add", [content, self._distance(asked[1], f"{name}", positions, content)], f"{name}.summed")
        score = graph.node("Mul", [score, graph.number((self._width // heads) ** -0.5)], f"{name}.scaled")
        score = graph.node("Add", [score, bias], f"{name}.scores")
        return layers.named_linear(layers.attend(score, values, name), f"{name}.linear_out")

    def _distance(self, asked: str, name: str, positions: str, like: str) -> str:
        """Scores by distance, brought from [.., time, 2 * time] of falling distance behind a column
        of zeros to [.., time, keys].

        In row-major memory, without its first `time` numbers, a row is one shorter than before: row
        i then starts time - 1 - i columns in.
        """
        graph, layers, heads = self.graph, self._layers, self._heads
        table = layers.linear(positions, layers.tensor(f"{name}.linear_pos.weight"), None, f"{name}.linear_pos")
        table = graph.node("Reshape", [table, graph.integers(0, heads, -1)], f"{name}.positions")
        table = graph.node("Transpose", [table], f"{name}.distances", perm=[1, 2, 0])
        falling = graph.node("MatMul", [asked, table], f"{name}.falling")
        shape = graph.node("Shape", [like], f"{name}.shape")
        time = graph.node("Gather", [shape, graph.integers(2)], f"{name}.time", axis=0)
        two = graph.node("Mul", [time, graph.integers(2)], f"{name}.time2")
        rows = graph.node(
            "Concat",
            [graph.integers(0, 0), time, graph.node("Sub", [two, graph.integers(1)], f"{name}.shorter")],
            f"{name}.rows",
            axis=0,
        )
        flat = graph.node("Reshape", [falling, graph.integers(0, 0, -1)], f"{name}.flat")
        flat = graph.node("Slice", [flat, time, graph.integers(_END), graph.integers(2)], f"{name}.shifted")
        lined = graph.node("Reshape", [flat, rows], f"{name}.lined")
        return graph.node("Slice", [lined, graph.integers(0), time, graph.integers(3)], f"{name}.of_each_key")
