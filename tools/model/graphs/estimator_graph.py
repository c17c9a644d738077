"""The flow's estimator as an ONNX graph (compatibility specification sections 4.5 and 4.8).

Inputs as in the published file, which has a fixed batch of 2 and full attention, and one more,
`attention`, so that streaming masks are honoured. Rows are streams times two, the one with the
condition and the one without.

| name | type, shape | what |
|---|---|---|
| x | float32 [rows, 80, frames] | where the stream stands on its way from noise to mel |
| mask | float32 [rows, 1, frames] | 1 for a frame of the stream, 0 for padding behind it |
| mu | float32 [rows, 80, frames] | what the encoder says, zeros in the second row of a stream |
| t | float32 [rows] | time of the flow, 0..1 |
| spks | float32 [rows, 80] | projected speaker, zeros in the second row |
| cond | float32 [rows, 80, frames] | the prompt's mel, zeros behind it and in the second row |
| attention | bool [frames, frames] | whether a query may see a key; all true for full attention |
| estimator_out | float32 [rows, 80, frames] | velocity |
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from cosyserve.errors import ModelError
from cosyserve.spec import MEL_BINS
from services.token2wav.flow.weights import FlowConfig
from tools.model.graphs.graph import Array, Graph, Precision
from tools.model.graphs.layers import Layers


def estimator_graph(
    tensors: Mapping[str, Array],
    config: FlowConfig,
    precision: Precision = Precision.FP32,
    *,
    scales: Mapping[str, float] | None = None,
    masked: bool = True,
) -> Graph:
    """tensors: the estimator's, float32, names without prefix. masked: False leaves `attention` out
    and fixes the batch at 2, as published."""
    return _Estimator(tensors, config, precision, scales, masked).graph


def largest_inputs_needed(graph: Graph) -> dict[str, str]:
    """The linear maps that multiply in 8 bits with precision fp8, each with the tensor whose
    largest magnitude it needs.
    """
    return {name: value for name, value in graph.product_inputs.items() if ".attn1." in name or ".ff." in name}


class _Estimator:
    def __init__(
        self,
        tensors: Mapping[str, Array],
        config: FlowConfig,
        precision: Precision,
        scales: Mapping[str, float] | None,
        masked: bool,
    ) -> None:
        self.graph = graph = Graph("estimator", precision)
        self._layers = Layers(graph, tensors, scales)
        self._config = config
        rows: str | int = "rows" if masked else 2
        wide = (rows, MEL_BINS, "frames")
        for name, shape in (
            ("x", wide),
            ("mask", (rows, 1, "frames")),
            ("mu", wide),
            ("t", (rows,)),
            ("spks", (rows, MEL_BINS)),
            ("cond", wide),
        ):
            graph.input(name, TensorProto.FLOAT, shape)
        attention = graph.input("attention", TensorProto.BOOL, ("frames", "frames")) if masked else None
        self._mask = graph.node("Transpose", ["mask"], "mask.frames", perm=[0, 2, 1])
        self._bias = self._layers.bias_of(self._layers.allowed(attention, "mask", "allowed"), "bias")
        graph.output("estimator_out", self._network(), wide)

    def _network(self) -> str:
        graph = self.graph
        time = self._time()
        x = skip = self._level(self._inputs(), time, "down_blocks.0")
        x = self._end(x, "down_blocks.0.2")
        for at in range(self._config.middle):
            x = self._level(x, time, f"mid_blocks.{at}")
        x = self._level(graph.node("Concat", [x, skip], "up_blocks.0.input", axis=2), time, "up_blocks.0")
        x = self._end(x, "up_blocks.0.2")
        x = self._real(self._block(x, "final_block"), "final_block.real")
        x = self._layers.to_full(self._one_tap(self._layers.to_products(x), "final_proj"))
        return graph.node("Transpose", [self._real(x, "final_proj.real")], "velocity", perm=[0, 2, 1])

    def _inputs(self) -> str:
        """x, mu, speaker and condition side by side, [rows, frames, 320]."""
        graph = self.graph
        x, mu, cond = (
            graph.node("Transpose", [name], f"{name}.frames", perm=[0, 2, 1]) for name in ("x", "mu", "cond")
        )
        speaker = graph.node("Unsqueeze", ["spks", graph.integers(1)], "spks.frame")
        speaker = graph.node("Expand", [speaker, graph.node("Shape", [x], "x.shape")], "spks.frames")
        return graph.layer("inputs", graph.node("Concat", [x, mu, speaker, cond], "inputs", axis=2))

    def _time(self) -> str:
        """Mish of the time embedding, float32 [rows, 1, 4 * channels]: two small maps, of numbers
        up to 1000.
        """
        graph, layers = self.graph, self._layers
        into = layers.tensor("time_mlp.linear_1.weight").shape[1]
        # The same rounding as the torch path's, which multiplies in float32.
        rate = np.exp(np.arange(into // 2, dtype=np.float32) * np.float32(-(math.log(10000.0) / (into // 2 - 1))))
        t = graph.node(
            "Mul", [graph.node("Unsqueeze", ["t", graph.integers(1)], "t.column"), graph.number(1000.0)], "t.thousand"
        )
        angle = graph.node("Mul", [t, graph.weight("time_rate", rate)], "time.angle")
        waves = graph.node(
            "Concat",
            [graph.node("Sin", [angle], "time.sin"), graph.node("Cos", [angle], "time.cos")],
            "time.waves",
            axis=1,
        )
        hidden = layers.silu(self._full("time_mlp.linear_1", waves), "time.hidden")
        embedding = graph.layer("time_mlp", self._full("time_mlp.linear_2", hidden))
        return graph.node("Unsqueeze", [layers.mish(embedding, "time.mish"), graph.integers(1)], "time")

    def _full(self, name: str, x: str) -> str:
        return self._layers.full_linear(
            x, self._layers.tensor(f"{name}.weight"), self._layers.tensor(f"{name}.bias"), name
        )

    def _real(self, x: str, name: str) -> str:
        return self.graph.node("Mul", [x, self._mask], name)

    def _one_tap(self, x: str, name: str) -> str:
        return self._layers.linear(
            x, self._layers.tensor(f"{name}.weight")[:, :, 0], self._layers.tensor(f"{name}.bias"), name
        )

    def _end(self, x: str, name: str) -> str:
        return self.graph.layer(name, self._layers.convolution(self._real(x, f"{name}.real"), name, before=2))

    def _block(self, x: str, name: str) -> str:
        """Causal block: real frames, convolution, norm, Mish, real frames."""
        x = self._layers.convolution(self._real(x, f"{name}.real_in"), f"{name}.block.0", before=2)
        x = self._layers.mish(self._layers.norm(x, f"{name}.block.2"), f"{name}.mish")
        return self._real(x, f"{name}.out")

    def _level(self, x: str, time: str, name: str) -> str:
        x = self._resnet(x, time, f"{name}.0")
        for at in range(self._config.transformers):
            x = self._transformer(x, f"{name}.1.{at}")
        return x

    def _resnet(self, x: str, time: str, name: str) -> str:
        graph, layers = self.graph, self._layers
        hidden = graph.node(
            "Add", [self._block(x, f"{name}.block1"), self._full(f"{name}.mlp.1", time)], f"{name}.timed"
        )
        hidden = self._block(hidden, f"{name}.block2")
        residual = layers.to_full(self._one_tap(layers.to_products(self._real(x, f"{name}.real")), f"{name}.res_conv"))
        return graph.layer(name, graph.node("Add", [hidden, residual], name))

    def _transformer(self, x: str, name: str) -> str:
        graph, layers = self.graph, self._layers
        attended = layers.to_full(self._attention(layers.to_products(layers.norm(x, f"{name}.norm1")), f"{name}.attn1"))
        x = graph.node("Add", [x, attended], f"{name}.attended")
        fed = layers.to_products(layers.norm(x, f"{name}.norm3"))
        fed = layers.gelu(layers.named_linear(fed, f"{name}.ff.net.0.proj"), f"{name}.ff.gelu")
        fed = layers.to_full(layers.named_linear(fed, f"{name}.ff.net.2"))
        return graph.layer(name, graph.node("Add", [x, fed], name))

    def _attention(self, x: str, name: str) -> str:
        graph, layers, heads, width = self.graph, self._layers, self._config.estimator_heads, self._config.head_width
        joined = np.concatenate([layers.tensor(f"{name}.to_{part}.weight") for part in "qkv"])
        parts = graph.split(layers.linear(x, joined, None, f"{name}.to_qkv"), [heads * width] * 3, f"{name}.qkv")
        queries, keys, values = (layers.heads(part, heads, part) for part in parts)
        keys = graph.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        queries = graph.node("Mul", [queries, graph.number(width**-0.5, "product")], f"{name}.queries")
        scores = graph.node(
            "Add", [graph.node("MatMul", [queries, keys], f"{name}.content"), self._bias], f"{name}.scores"
        )
        return layers.named_linear(layers.attend(scores, values, name), f"{name}.to_out.0")


def model_of(graph: Graph, model_hash: str) -> onnx.ModelProto:
    """The finished file of any of our graphs, which says whose weights it holds."""
    return graph.model({"model_hash": model_hash})


_EXPECTED = {
    "x": (2, MEL_BINS, None),
    "mask": (2, 1, None),
    "mu": (2, MEL_BINS, None),
    "t": (2,),
    "spks": (2, MEL_BINS),
    "cond": (2, MEL_BINS, None),
}
_LARGEST = 1 << 31


def read_published(path: Path) -> onnx.ModelProto:
    """The file, checked: one batch of 2, no attention mask, float32. Raises ModelError naming what
    differs.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    if path.stat().st_size >= _LARGEST:
        raise ModelError(
            f"{path}: {path.stat().st_size} bytes; the published estimator has 0.3 GB, and no ONNX file 2 GiB"
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and onnx's own, and what a damaged file leads to
        raise ModelError(
            f"{path}: no valid ONNX file: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        ) from error
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _shape(value) for value in model.graph.input if value.name not in weights}
    if inputs != _EXPECTED:
        raise ModelError(f"{path}: inputs are {inputs}, the published estimator has {_EXPECTED} (None: free)")
    if [value.name for value in model.graph.output] != ["estimator_out"]:
        raise ModelError(
            f"{path}: outputs are {[value.name for value in model.graph.output]}, the published estimator has "
            "estimator_out"
        )
    wrong = [
        value.name
        for value in (*model.graph.input, *model.graph.output)
        if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT
    ]
    if wrong:
        raise ModelError(f"{path}: {', '.join(wrong)} are not float32")
    return model


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(
        length.dim_value if length.HasField("dim_value") else None for length in value.type.tensor_type.shape.dim
    )
