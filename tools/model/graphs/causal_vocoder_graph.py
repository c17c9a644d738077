"""The two networks of causal HiFT as ONNX graphs, float32 (compatibility specification of
CosyVoice3, sections 5.2 and 5.4).

| graph | name | type, shape | what |
|---|---|---|---|
| pitch | mel | float32 [streams, 80, frames] | zeros are seen beyond its ends |
| | f0 | float32 [streams, frames] | Hz; of a piece, valid but for the last three |
| filter | mel | float32 [streams, 80, frames + 4] | four only look ahead, zeros behind the end |
| | source | float32 [streams, 480 * frames + 16] | as HiFT's |
| | samples | float32 [streams, 480 * frames] | the last three are those of a sentence's end |

What lies before a piece is zeros to the graphs, so its first frames are context: 8 of f0, 30 of
samples.
"""

import torch

from services.token2wav.vocoder.causal.convolutions import merged_phases
from services.token2wav.vocoder.causal.weights import PITCH_LOOKAHEAD
from tools.model.graphs.vocoder_graph import FilterGraph, PitchGraph, VocoderGraph


class _Backward(VocoderGraph):
    def zeros(self, kernel: int, dilation: int) -> tuple[int, int]:
        """A column depends on itself and those before it."""
        return (kernel - 1) * dilation, 0


class CausalPitchGraph(_Backward, PitchGraph):
    """config: of causal HiFT."""

    ahead = (0, PITCH_LOOKAHEAD)


class CausalFilterGraph(_Backward, FilterGraph):
    """config: of causal HiFT."""

    ahead = (0, 0)
    mel_length = "mel_frames"

    def raised(self, x: str, level: int) -> str:
        """See `RaisingConvolution`."""
        rate, ups = self.config.upsample_rates[level], f"ups.{level}"
        weight, bias = (self.tensors[f"{ups}.{kind}"] for kind in ("weight", "bias"))
        phases = merged_phases(torch.from_numpy(weight), rate).flatten(0, 1).numpy()
        weights = [
            self.weight(f"{ups}.weight", phases),
            self.weight(f"{ups}.bias", torch.from_numpy(bias).repeat(rate).numpy()),
        ]
        taps = phases.shape[2]
        y = self.node("Conv", [x, *weights], f"{ups}.phases", kernel_shape=[taps], pads=[taps - 1, 0])
        y = self.node("Transpose", [y], f"{ups}.columns", perm=[0, 2, 1])
        y = self.node("Reshape", [y, self.integers(0, -1, len(bias))], f"{ups}.one_by_one")
        return self.node("Transpose", [y], ups, perm=[0, 2, 1])

    def heard(self, spectrum: str, level: int) -> str:
        """See `StridedConvolution`."""
        stride = self.config.source_stride(level)
        return self.convolution(spectrum, f"source_downs.{level}", (stride - 1, 0), stride=stride)
