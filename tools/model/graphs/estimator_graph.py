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
from services.token2wav.flow.unet.weights import UnetConfig
from tools.model.graphs.graph import Array, Precision
from tools.model.graphs.layers import LayerGraph

_LARGEST = 1 << 31


class EstimatorGraph(LayerGraph):
    """tensors: the estimator's, names without prefix. masked: False leaves `attention` out and
    fixes the batch at 2, as published.
    """

    def __init__(
        self,
        tensors: Mapping[str, Array],
        config: UnetConfig,
        precision: Precision = Precision.FP32,
        *,
        scales: Mapping[str, float] | None = None,
        masked: bool = True,
    ) -> None:
        super().__init__("estimator", tensors, precision, scales)
        self._config = config
        shapes = _shapes("rows" if masked else 2, "frames")
        kinds = {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()}
        if masked:
            kinds["attention"] = TensorProto.BOOL, ("frames", "frames")
        self.inputs(kinds)
        self._mask = self.node("Transpose", ["mask"], "mask.frames", perm=[0, 2, 1])
        self._bias = self.bias_of(self.allowed("attention" if masked else None, "mask", "allowed"), "bias")
        self.output("estimator_out", self._network(), shapes["x"])

    @property
    def largest_inputs_needed(self) -> dict[str, str]:
        """The linear maps that multiply in 8 bits with precision fp8, each with the tensor whose
        largest magnitude it needs.
        """
        return {name: value for name, value in self.product_inputs.items() if ".attn1." in name or ".ff." in name}

    def _network(self) -> str:
        time = self._time()
        x = skip = self._level(self._side_by_side(), time, "down_blocks.0")
        x = self._end(x, "down_blocks.0.2")
        for at in range(self._config.middle):
            x = self._level(x, time, f"mid_blocks.{at}")
        x = self._level(self.node("Concat", [x, skip], "up_blocks.0.input", axis=2), time, "up_blocks.0")
        x = self._end(x, "up_blocks.0.2")
        x = self._real(self._block(x, "final_block"), "final_block.real")
        x = self.to_full(self._one_tap(self.to_products(x), "final_proj"))
        return self.node("Transpose", [self._real(x, "final_proj.real")], "velocity", perm=[0, 2, 1])

    def _side_by_side(self) -> str:
        """x, mu, speaker and condition side by side, [rows, frames, 320]."""
        x, mu, cond = (self.node("Transpose", [name], f"{name}.frames", perm=[0, 2, 1]) for name in ("x", "mu", "cond"))
        speaker = self.node("Unsqueeze", ["spks", self.integers(1)], "spks.frame")
        speaker = self.node("Expand", [speaker, self.node("Shape", [x], "x.shape")], "spks.frames")
        return self.layer("inputs", self.node("Concat", [x, mu, speaker, cond], "inputs", axis=2))

    def _time(self) -> str:
        """Mish of the time embedding, float32 [rows, 1, 4 * channels]: two small maps, of numbers
        up to 1000.
        """
        into = self.tensors["time_mlp.linear_1.weight"].shape[1]
        # The same rounding as the torch path's, which multiplies in float32.
        rate = np.exp(np.arange(into // 2, dtype=np.float32) * np.float32(-(math.log(10000.0) / (into // 2 - 1))))
        t = self.node(
            "Mul", [self.node("Unsqueeze", ["t", self.integers(1)], "t.column"), self.number(1000.0)], "t.thousand"
        )
        angle = self.node("Mul", [t, self.weight("time_rate", rate)], "time.angle")
        waves = self.node(
            "Concat",
            [self.node("Sin", [angle], "time.sin"), self.node("Cos", [angle], "time.cos")],
            "time.waves",
            axis=1,
        )
        hidden = self.silu(self.full_linear(waves, "time_mlp.linear_1"), "time.hidden")
        embedding = self.layer("time_mlp", self.full_linear(hidden, "time_mlp.linear_2"))
        return self.node("Unsqueeze", [self.mish(embedding, "time.mish"), self.integers(1)], "time")

    def _real(self, x: str, name: str) -> str:
        return self.node("Mul", [x, self._mask], name)

    def _one_tap(self, x: str, name: str) -> str:
        return self.linear(x, self.tensors[f"{name}.weight"][:, :, 0], self.tensors[f"{name}.bias"], name)

    def _end(self, x: str, name: str) -> str:
        return self.layer(name, self.convolution(self._real(x, f"{name}.real"), name, before=2))

    def _block(self, x: str, name: str) -> str:
        """Causal block: real frames, convolution, norm, Mish, real frames."""
        x = self.convolution(self._real(x, f"{name}.real_in"), f"{name}.block.0", before=2)
        x = self.mish(self.norm(x, f"{name}.block.2"), f"{name}.mish")
        return self._real(x, f"{name}.out")

    def _level(self, x: str, time: str, name: str) -> str:
        x = self._resnet(x, time, f"{name}.0")
        for at in range(self._config.transformers):
            x = self._transformer(x, f"{name}.1.{at}")
        return x

    def _resnet(self, x: str, time: str, name: str) -> str:
        hidden = self.node(
            "Add", [self._block(x, f"{name}.block1"), self.full_linear(time, f"{name}.mlp.1")], f"{name}.timed"
        )
        hidden = self._block(hidden, f"{name}.block2")
        residual = self.to_full(self._one_tap(self.to_products(self._real(x, f"{name}.real")), f"{name}.res_conv"))
        return self.layer(name, self.node("Add", [hidden, residual], name))

    def _transformer(self, x: str, name: str) -> str:
        attended = self.to_full(self._attention(self.to_products(self.norm(x, f"{name}.norm1")), f"{name}.attn1"))
        x = self.node("Add", [x, attended], f"{name}.attended")
        fed = self.to_products(self.norm(x, f"{name}.norm3"))
        fed = self.gelu(self.named_linear(fed, f"{name}.ff.net.0.proj"), f"{name}.ff.gelu")
        fed = self.to_full(self.named_linear(fed, f"{name}.ff.net.2"))
        return self.layer(name, self.node("Add", [x, fed], name))

    def _attention(self, x: str, name: str) -> str:
        heads, width = self._config.estimator_heads, self._config.head_width
        matrix = np.concatenate([self.tensors[f"{name}.to_{part}.weight"] for part in "qkv"])
        joined = self.linear(x, matrix, None, f"{name}.to_qkv")
        queries, keys, values = self.split_heads(joined, heads, heads * width, f"{name}.qkv")
        keys = self.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        queries = self.node("Mul", [queries, self.number(width**-0.5, "product")], f"{name}.queries")
        scores = self.node(
            "Add", [self.node("MatMul", [queries, keys], f"{name}.content"), self._bias], f"{name}.scores"
        )
        return self.named_linear(self.attend(scores, values, name), f"{name}.to_out.0")


def _shapes(rows: str | int, frames: str | None) -> dict[str, tuple[str | int | None, ...]]:
    """Of the published inputs; a name or None is a free length."""
    wide: tuple[str | int | None, ...] = (rows, MEL_BINS, frames)
    return {"x": wide, "mask": (rows, 1, frames), "mu": wide, "t": (rows,), "spks": (rows, MEL_BINS), "cond": wide}


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
    inputs = {
        value.name: tuple(
            length.dim_value if length.HasField("dim_value") else None for length in value.type.tensor_type.shape.dim
        )
        for value in model.graph.input
        if value.name not in weights
    }
    expected = _shapes(2, None)
    if inputs != expected:
        raise ModelError(f"{path}: inputs are {inputs}, the published estimator has {expected} (None: free)")
    outputs = [value.name for value in model.graph.output]
    if outputs != ["estimator_out"]:
        raise ModelError(f"{path}: outputs are {outputs}, the published estimator has estimator_out")
    wrong = [
        value.name
        for value in (*model.graph.input, *model.graph.output)
        if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT
    ]
    if wrong:
        raise ModelError(f"{path}: {', '.join(wrong)} are not float32")
    return model
