"""What stands in front of the estimator of CosyVoice3's flow as an ONNX graph, float32
(compatibility specification of CosyVoice3, sections 4.1 and 4.2).

| name | type, shape | what |
|---|---|---|
| tokens | int32 [streams, seen] | speech tokens and the three behind them, any id for none |
| known | float32 [streams, seen] | 1 for a token that exists, 0 for none |
| mu | float32 [streams, 80, 2 * tokens] | the estimator's condition |
"""

from collections.abc import Mapping

from onnx import TensorProto

from cosyserve.spec import MEL_BINS
from services.token2wav.flow.dit.weights import DitConfig
from tools.model.graphs.graph import Array
from tools.model.graphs.layers import LayerGraph


class LookAheadGraph(LayerGraph):
    """tensors: those of `flow.pt`."""

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
