"""The two networks of HiFT as ONNX graphs, float32 (compatibility specification sections 5.1 and
5.3).

Between them lies the source, whose noise and whose phase over a whole sentence belong to the
caller:

| graph | name | type, shape | what | |---|---|---|---| | pitch | mel | float32 [streams, 80,
frames] | zeros are seen beyond its ends | | | f0 | float32 [streams, frames] | Hz | | filter | mel
| float32 [streams, 80, frames] | zeros are seen beyond its ends | | | source | float32 [streams,
480 * frames + 16] | excitation of those frames and 8 samples on each side, mirrored at a sentence's
ends | | | samples | float32 [streams, 480 * frames] | within the audio limit |

The torch path computes f0 in float64, which TensorRT does not have: `docs/engines.md` has what that
changes.
"""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from cosyserve.spec import MEL_BINS
from services.token2wav.vocoder.hift import LARGEST_MAGNITUDE, LAST_SLOPE
from services.token2wav.vocoder.weights import EDGE_KERNEL, F0_KERNEL, F0_LAYERS, VocoderConfig
from tools.model.graphs.graph import END, Array, Graph

_LARGEST_LOG = float(np.log(LARGEST_MAGNITUDE))
_NOTHING = -1e30
"""Its exponential is zero; a limit that changes nothing, since not every parser takes a clip
without one.
"""


class VocoderGraph(Graph):
    """tensors: those of `hift.pt`, weight norm fused."""

    def __init__(self, name: str, tensors: Mapping[str, Array], config: VocoderConfig) -> None:
        super().__init__(name, tensors)
        self.config = config

    def convolution(
        self, x: str, name: str, pads: tuple[int, int] | None = None, *, dilation: int = 1, stride: int = 1
    ) -> str:
        """pads: columns of zeros before and after x, None: as `zeros` says."""
        kernel = self.tensors[f"{name}.weight"].shape[2]
        return self.node(
            "Conv",
            [x, *self.own(name)],
            name,
            kernel_shape=[kernel],
            pads=list(self.zeros(kernel, dilation) if pads is None else pads),
            dilations=[dilation],
            strides=[stride],
        )

    def zeros(self, kernel: int, dilation: int) -> tuple[int, int]:
        """Columns of zeros before and after the input of a convolution that makes as many columns
        as it gets.
        """
        return (kernel // 2 * dilation,) * 2


class PitchGraph(VocoderGraph):
    ahead = (F0_KERNEL // 2,) * 2
    """Columns of zeros before and after the input of the first convolution."""

    def __init__(self, tensors: Mapping[str, Array], config: VocoderConfig) -> None:
        super().__init__("pitch", tensors, config)
        self.inputs({"mel": (TensorProto.FLOAT, ("streams", MEL_BINS, "frames"))})
        x = "mel"
        for at in range(F0_LAYERS):
            name = f"f0_predictor.condnet.{2 * at}"
            x = self.convolution(x, name, self.ahead if at == 0 else None)
            x = self.layer(name, self.node("Elu", [x], f"{name}.elu", alpha=1.0))
        x = self.node("Transpose", [x], "frames", perm=[0, 2, 1])
        weight = self.weight("classifier.weight", tensors["f0_predictor.classifier.weight"].T)
        x = self.node("MatMul", [x, weight], "classified")
        x = self.node("Add", [x, self.weight("classifier.bias", tensors["f0_predictor.classifier.bias"])], "signed")
        x = self.node("Squeeze", [self.node("Abs", [x], "unsigned"), self.integers(2)], "hertz")
        self.output("f0", x, ("streams", "frames"))


class FilterGraph(VocoderGraph):
    ahead = (EDGE_KERNEL // 2,) * 2
    """Columns of zeros before and after the mel."""
    mel_length = "frames"

    def __init__(self, tensors: Mapping[str, Array], config: VocoderConfig) -> None:
        super().__init__("filter", tensors, config)
        self.inputs({
            "mel": (TensorProto.FLOAT, ("streams", MEL_BINS, self.mel_length)),
            "source": (TensorProto.FLOAT, ("streams", "source_samples")),
        })  # fmt: skip
        sample = np.arange(config.n_fft)
        self._window = 0.5 - 0.5 * np.cos(2 * np.pi * sample / config.n_fft)  # periodic Hann
        self._angle = 2 * np.pi * np.outer(np.arange(config.bins), sample) / config.n_fft
        spectrum = self._analyse()
        x = self.layer("conv_pre", self.convolution("mel", "conv_pre", self.ahead))
        for level in range(config.levels):
            x = self._level(x, spectrum, level)
        x = self.node("LeakyRelu", [x], "last_slope", alpha=LAST_SLOPE)
        planes = self.layer("conv_post", self.convolution(x, "conv_post"))
        limit = self.number(config.audio_limit)
        limited = self.node("Clip", [self._synthesise(planes), self.number(-config.audio_limit), limit], "limited")
        self.output("samples", limited, ("streams", "samples"))

    def _analyse(self) -> str:
        """Short-time spectrum [streams, 18, 120 * frames + 1] as a convolution with windowed
        cosines and negative sines.
        """
        config = self.config
        waves = np.concatenate([np.cos(self._angle), -np.sin(self._angle)]) * self._window
        column = self.node("Unsqueeze", ["source", self.integers(1)], "source.column")
        weight = self.weight("analysis", waves[:, None].astype(np.float32))
        return self.layer(
            "spectrum",
            self.node("Conv", [column, weight], "spectrum", kernel_shape=[config.n_fft], strides=[config.hop_len]),
        )

    def _synthesise(self, planes: str) -> str:
        """Log-magnitude and angle [streams, 18, n] -> samples: overlap-add over the overlap-added
        square of the window.

        Both sums are one transposed convolution, whose last input channel is one: at the ends fewer
        windows overlap.
        """
        config = self.config
        logarithm = self.slice(planes, 0, config.bins, 1, "log_magnitude")
        angle = self.slice(planes, config.bins, END, 1, "angle")
        # Limited before the exponential, so that no infinity arises on the way.
        limited = self.node("Clip", [logarithm, self.number(_NOTHING), self.number(_LARGEST_LOG)], "log_limited")
        magnitude = self.node("Exp", [limited], "magnitude")
        angle = self.node("Sin", [angle], "turned")
        parts = [
            self.node("Mul", [magnitude, self.node(op, [angle], f"turned.{op.lower()}")], f"part.{op.lower()}")
            for op in ("Cos", "Sin")
        ]
        one = self.slice(magnitude, 0, 1, 1, "one.like")
        ones = self.node("Expand", [self.number(1.0), self.node("Shape", [one], "one.shape")], "ones")
        x = self.node("Concat", [*parts, ones], "frames_to_add", axis=1)
        weight = self.weight("synthesis", self._synthesis().astype(np.float32))
        added = self.node("ConvTranspose", [x, weight], "added", kernel_shape=[config.n_fft], strides=[config.hop_len])
        half = config.n_fft // 2
        sides = []
        for at, name in ((0, "overlapped"), (1, "energy")):
            limits = [self.integers(at, half), self.integers(at + 1, -half), self.integers(1, 2)]
            sides.append(self.node("Slice", [added, *limits], name))
        return self.node("Squeeze", [self.node("Div", sides, "divided"), self.integers(1)], "unlimited")

    def _synthesis(self) -> Array:
        """[19, 2, n_fft]: real and imaginary parts to windowed samples, the constant one to the
        window's square.
        """
        config, window, angle = self.config, self._window, self._angle
        counted = (
            np.where((np.arange(config.bins) == 0) | (np.arange(config.bins) == config.n_fft // 2), 1.0, 2.0)[:, None]
            / config.n_fft
        )
        weight = np.zeros((2 * config.bins + 1, 2, config.n_fft))
        weight[: config.bins, 0] = counted * np.cos(angle) * window
        weight[config.bins : -1, 0] = -counted * np.sin(angle) * window
        weight[-1, 1] = window**2
        return weight

    def _level(self, x: str, spectrum: str, level: int) -> str:
        config, name = self.config, f"levels.{level}"
        x = self.node("LeakyRelu", [x], f"{name}.slope", alpha=config.lrelu_slope)
        x = self.layer(f"ups.{level}", self.raised(x, level))
        if level == config.levels - 1:
            x = self.node("Concat", [self.slice(x, 1, 2, 2, f"{name}.mirrored"), x], f"{name}.longer", axis=2)
        excitation = self.heard(spectrum, level)
        dilations = config.source_resblock_dilation_sizes[level]
        excited = self._residual(excitation, f"source_resblocks.{level}", dilations)
        merged = self.layer(f"{name}.merged", self.node("Add", [x, excited], f"{name}.merged"))
        variants, total = config.resblock_dilation_sizes, ""
        for at, dilations in enumerate(variants):
            block = self._residual(merged, f"resblocks.{len(variants) * level + at}", dilations)
            total = self.node("Add", [total, block], f"{name}.sum{at}") if total else block
        return self.layer(name, self.node("Div", [total, self.number(float(len(variants)))], name))

    def raised(self, x: str, level: int) -> str:
        """The columns of a level, `rate` for each of x."""
        rate, kernel = self.config.upsample_rates[level], self.config.upsample_kernel_sizes[level]
        ups, pads = f"ups.{level}", [(kernel - rate) // 2] * 2
        return self.node("ConvTranspose", [x, *self.own(ups)], ups, kernel_shape=[kernel], strides=[rate], pads=pads)

    def heard(self, spectrum: str, level: int) -> str:
        """The excitation of a level."""
        stride = self.config.source_stride(level)
        return self.convolution(spectrum, f"source_downs.{level}", (stride // 2,) * 2, stride=stride)

    def _residual(self, x: str, name: str, dilations: tuple[int, ...]) -> str:
        for at, dilation in enumerate(dilations):
            y = self._snake(x, f"{name}.activations1.{at}")
            y = self.convolution(y, f"{name}.convs1.{at}", dilation=dilation)
            y = self._snake(y, f"{name}.activations2.{at}")
            y = self.convolution(y, f"{name}.convs2.{at}")
            x = self.node("Add", [x, y], f"{name}.{at}")
        return self.layer(name, x)

    def _snake(self, x: str, name: str) -> str:
        """x + sin(alpha x)^2 / alpha."""
        alpha = self.tensors[f"{name}.alpha"][:, None]
        angle = self.node("Mul", [x, self.weight(f"{name}.alpha", alpha)], f"{name}.angle")
        sine = self.node("Sin", [angle], f"{name}.sin")
        square = self.node("Mul", [sine, sine], f"{name}.square")
        inverse = self.weight(f"{name}.inverse", 1.0 / (alpha + np.float32(1e-9)))
        return self.node("Add", [x, self.node("Mul", [square, inverse], f"{name}.wave")], name)
