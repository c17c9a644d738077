"""The conformer in front of Step-Audio2's DiT for one block of tokens, float32, as an ONNX graph.

| name | type, shape | what |
|---|---|---|
| tokens | int32 [streams, tokens + 3] | ids of the block, up to 3 of look-ahead, padding |
| known | float32 [streams, tokens + 3] | 1 where there is an id |
| past | float32 [2 * layers, streams, heads, past, head width] | keys, values, aligned to the end |
| past_frames | float32 [2 * layers, streams, heads, 2 * past, head width] | behind the upsampling |
| seen | bool [streams, past + tokens] | whether a key exists |
| seen_frames | bool [streams, 2 * (past + tokens)] | the same behind the upsampling |
| positions | float32 [past + 2 * tokens, width] | a row of zeros, then sinusoids of the distances
past + tokens - 1 down to 1 - tokens |
| positions_frames | float32 [2 * (past + 2 * tokens), width] | the same for frames |
| columns | float32 [streams, 2, width] | kept inputs of the look-ahead layer's second convolution |
| columns_frames | float32 [streams, 4, width] | of the convolution of the upsampling |
| tail | float32 [streams, 2, tokens + 2] | 1 where the last columns are |
| tail_frames | float32 [streams, 4, 2 * tokens + 4] | the same for frames |
| mu | float32 [streams, 2 * tokens, 80] | |
| new_past, new_past_frames, new_columns, new_columns_frames | | what is kept of the block |
"""

from onnx import TensorProto

from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_BINS
from services.token2wav.engines.chunks.shapes import SMOOTH_REACH, UP_REACH
from services.token2wav.flow.unet.front import FrontConfig
from tools.model.graphs.chunks.kept_state import KeptColumns, KeptKeys
from tools.model.graphs.encoder_graph import LOOK_AHEAD, EncoderGraph


class EncoderChunkGraph(EncoderGraph):
    """config: of a flow with this conformer."""

    def _compute(self, config: FrontConfig) -> None:
        width, heads = self._width, self._heads
        head_width = width // heads
        layers, upper = 2 * config.encoder_layers, 2 * config.encoder_upsampled_layers
        self.inputs({
            "tokens": (TensorProto.INT32, ("streams", "seen_tokens")),
            "known": (TensorProto.FLOAT, ("streams", "seen_tokens")),
            "past": (TensorProto.FLOAT, (layers, "streams", heads, "past", head_width)),
            "past_frames": (TensorProto.FLOAT, (upper, "streams", heads, "past_frames", head_width)),
            "seen": (TensorProto.BOOL, ("streams", "keys")),
            "seen_frames": (TensorProto.BOOL, ("streams", "frame_keys")),
            "positions": (TensorProto.FLOAT, ("distances", width)),
            "positions_frames": (TensorProto.FLOAT, ("frame_distances", width)),
            "columns": (TensorProto.FLOAT, ("streams", SMOOTH_REACH, width)),
            "columns_frames": (TensorProto.FLOAT, ("streams", UP_REACH, width)),
            "tail": (TensorProto.FLOAT, ("streams", SMOOTH_REACH, "smoothed")),
            "tail_frames": (TensorProto.FLOAT, ("streams", UP_REACH, "raised")),
        })  # fmt: skip
        self._smooth, self._up = (
            KeptColumns(self, "columns", "tail"),
            KeptColumns(self, "columns_frames", "tail_frames"),
        )
        self._keys = lower = KeptKeys(self, "past")
        x, bias = self._in_order(self._embedded()), self._seen("seen")
        for at in range(config.encoder_layers):
            x = self._conformer(x, f"encoder.encoders.{at}", bias, "positions")
        name = "encoder.up_layer.conv"
        x = self.convolution(self._up.in_front(self.twice(x, width), width, name), name, before=0)
        x, bias = self._scaled(x, "encoder.up_embed"), self._seen("seen_frames")
        self._keys = KeptKeys(self, "past_frames")
        for at in range(config.encoder_upsampled_layers):
            x = self._conformer(x, f"encoder.up_encoders.{at}", bias, "positions_frames")
        self.output("mu", self._projected(x), ("streams", "frames", MEL_BINS))
        lower.output("streams", heads, "tokens", head_width)
        self._keys.output("streams", heads, "frames", head_width)
        self._smooth.output("streams", SMOOTH_REACH)
        self._up.output("streams", UP_REACH)

    def _in_order(self, x: str) -> str:
        """The look-ahead layer behind the columns that are kept of it."""
        itself = self.layer("embed", self.slice(x, 0, -LOOKAHEAD_TOKENS, 1, "embedded.itself"))
        name = f"{LOOK_AHEAD}.conv2"
        seen = self.node("LeakyRelu", [self.convolution(x, f"{LOOK_AHEAD}.conv1", before=0)], "seen_ahead", alpha=0.01)
        smooth = self.convolution(self._smooth.in_front(seen, self._width, name), name, before=0)
        return self.layer("pre_lookahead", self.node("Add", [smooth, itself], "pre_lookahead"))

    def _seen(self, keys: str) -> str:
        """Added to the scores: float32 [streams, 1, 1, keys]."""
        return self.bias_of(self.node("Unsqueeze", [keys, self.integers(1, 2)], f"{keys}.keys"), f"{keys}.bias")

    def _with_past(self, keys: str, values: str, name: str) -> tuple[str, str]:
        return self._keys.extended(keys, values, name)

    def _lengths(self, shape: str, time: str, name: str) -> tuple[str, str]:
        keys = self.node("Gather", [shape, self.integers(3)], f"{name}.key_count", axis=0)
        return keys, self.node("Add", [time, keys], f"{name}.time_and_keys")
