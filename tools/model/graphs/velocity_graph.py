"""What the graphs of the flow's estimators have in common, whatever network they are of.

Inputs as in the published files, which have a fixed batch of 2 and full attention, and one more,
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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from cosyserve.errors import ModelError
from cosyserve.spec import MEL_BINS
from tools.model.graphs.graph import Array, Precision
from tools.model.graphs.layers import LayerGraph

_LARGEST = 1 << 31


class VelocityGraph(LayerGraph, ABC):
    """tensors: the estimator's, names without prefix. masked: False leaves `attention` out and
    fixes the batch at 2, as published.
    """

    def __init__(
        self,
        tensors: Mapping[str, Array],
        config: Any,
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
    @abstractmethod
    def largest_inputs_needed(self) -> dict[str, str]:
        """The linear maps that multiply in 8 bits with precision fp8, each with the tensor whose
        largest magnitude it needs.
        """

    @abstractmethod
    def _network(self) -> str:
        """The velocity, float32 [rows, 80, frames]."""

    def _side_by_side(self, *order: str) -> str:
        """x, mu, cond and the speaker as `spks` side by side in this order, [rows, frames, 320]."""
        parts = {name: self.node("Transpose", [name], f"{name}.frames", perm=[0, 2, 1]) for name in ("x", "mu", "cond")}
        speaker = self.node("Unsqueeze", ["spks", self.integers(1)], "spks.frame")
        speaker = self.node("Expand", [speaker, self.node("Shape", [parts["x"]], "x.shape")], "spks.frames")
        parts["spks"] = speaker
        return self.layer("inputs", self.node("Concat", [parts[name] for name in order], "inputs", axis=2))

    def _time_embedding(self, rate: Array, first: str, second: str, layer: str) -> str:
        """The embedding of the time, float32 [rows, width]: two small maps, of numbers up to 1000.
        rate: float32, of the sinusoids.
        """
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
        hidden = self.silu(self.full_linear(waves, first), "time.hidden")
        return self.layer(layer, self.full_linear(hidden, second))

    def _real(self, x: str, name: str) -> str:
        """Zeros in padded frames."""
        return self.node("Mul", [x, self._mask], name)


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
            f"{path}: {path.stat().st_size} bytes; the published estimators have 0.3 and 1.3 GB, and no ONNX file 2 GiB"
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
