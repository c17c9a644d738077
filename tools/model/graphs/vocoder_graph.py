"""The vocoder's two networks as ONNX graphs, float32 (compatibility specification sections 5.1 and
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
from tools.model.graphs.graph import Array, Graph

_END = int(np.iinfo(np.int32).max)
_LARGEST_LOG = float(np.log(LARGEST_MAGNITUDE))
_NOTHING = -1e30
"""Its exponential is zero; a limit that changes nothing, since not every parser takes a clip
without one.
"""


def pitch_graph(tensors: Mapping[str, Array], config: VocoderConfig) -> Graph:
    """tensors: those of `hift.pt`, float32, weight norm fused."""
    graph = Graph("pitch")
    x = graph.input("mel", TensorProto.FLOAT, ("streams", MEL_BINS, "frames"))
    for at in range(F0_LAYERS):
        name = f"f0_predictor.condnet.{2 * at}"
        x = graph.node("Elu", [_convolution(graph, tensors, x, name, padding=F0_KERNEL // 2)], f"{name}.elu", alpha=1.0)
        graph.layer(name, x)
    x = graph.node("Transpose", [x], "frames", perm=[0, 2, 1])
    weight = graph.weight("classifier.weight", tensors["f0_predictor.classifier.weight"].T)
    x = graph.node(
        "Add",
        [
            graph.node("MatMul", [x, weight], "classified"),
            graph.weight("classifier.bias", tensors["f0_predictor.classifier.bias"]),
        ],
        "signed",
    )
    x = graph.node("Squeeze", [graph.node("Abs", [x], "unsigned"), graph.integers(2)], "hertz")
    graph.output("f0", x, ("streams", "frames"))
    return graph


def filter_graph(tensors: Mapping[str, Array], config: VocoderConfig) -> Graph:
    """tensors: those of `hift.pt`, float32, weight norm fused."""
    return _Filter(tensors, config).graph


def _convolution(
    graph: Graph,
    tensors: Mapping[str, Array],
    x: str,
    name: str,
    *,
    padding: int,
    dilation: int = 1,
    stride: int = 1,
    padding_after: int | None = None,
) -> str:
    weights = [graph.weight(f"{name}.{kind}", tensors[f"{name}.{kind}"]) for kind in ("weight", "bias")]
    pads = [padding, padding if padding_after is None else padding_after]
    return graph.node(
        "Conv",
        [x, *weights],
        name,
        kernel_shape=[tensors[f"{name}.weight"].shape[2]],
        pads=pads,
        dilations=[dilation],
        strides=[stride],
    )


class _Filter:
    def __init__(self, tensors: Mapping[str, Array], config: VocoderConfig) -> None:
        self.graph = graph = Graph("filter")
        self._tensors, self._config = tensors, config
        graph.input("mel", TensorProto.FLOAT, ("streams", MEL_BINS, "frames"))
        graph.input("source", TensorProto.FLOAT, ("streams", "source_samples"))
        spectrum = self._analyse()
        x = graph.layer("conv_pre", _convolution(graph, tensors, "mel", "conv_pre", padding=EDGE_KERNEL // 2))
        for level in range(config.levels):
            x = self._level(x, spectrum, level)
        x = graph.node("LeakyRelu", [x], "last_slope", alpha=LAST_SLOPE)
        planes = graph.layer("conv_post", _convolution(graph, tensors, x, "conv_post", padding=EDGE_KERNEL // 2))
        limit = graph.number(config.audio_limit)
        limited = graph.node("Clip", [self._synthesise(planes), graph.number(-config.audio_limit), limit], "limited")
        graph.output("samples", limited, ("streams", "samples"))

    def _window(self) -> Array:
        """Periodic Hann, float64 [n_fft]."""
        n_fft = self._config.n_fft
        return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft))

    def _analyse(self) -> str:
        """Short-time spectrum [streams, 18, 120 * frames + 1] as a convolution with windowed
        cosines and negative sines.
        """
        graph, config = self.graph, self._config
        angle = 2 * np.pi * np.outer(np.arange(config.bins), np.arange(config.n_fft)) / config.n_fft
        waves = np.concatenate([np.cos(angle), -np.sin(angle)]) * self._window()
        column = graph.node("Unsqueeze", ["source", graph.integers(1)], "source.column")
        weight = graph.weight("analysis", waves[:, None].astype(np.float32))
        return graph.layer(
            "spectrum",
            graph.node("Conv", [column, weight], "spectrum", kernel_shape=[config.n_fft], strides=[config.hop_len]),
        )

    def _synthesise(self, planes: str) -> str:
        """Log-magnitude and angle [streams, 18, n] -> samples: overlap-add over the overlap-added
        square of the window.

        Both sums are one transposed convolution, whose last input channel is one: at the ends fewer
        windows overlap.
        """
        graph, config = self.graph, self._config
        logarithm = graph.node(
            "Slice", [planes, graph.integers(0), graph.integers(config.bins), graph.integers(1)], "log_magnitude"
        )
        angle = graph.node(
            "Slice", [planes, graph.integers(config.bins), graph.integers(_END), graph.integers(1)], "angle"
        )
        # Limited before the exponential, so that no infinity arises on the way.
        magnitude = graph.node(
            "Exp",
            [graph.node("Clip", [logarithm, graph.number(_NOTHING), graph.number(_LARGEST_LOG)], "log_limited")],
            "magnitude",
        )
        angle = graph.node("Sin", [angle], "turned")
        parts = [
            graph.node("Mul", [magnitude, graph.node(op, [angle], f"turned.{op.lower()}")], f"part.{op.lower()}")
            for op in ("Cos", "Sin")
        ]
        one = graph.node("Slice", [magnitude, graph.integers(0), graph.integers(1), graph.integers(1)], "one.like")
        ones = graph.node("Expand", [graph.number(1.0), graph.node("Shape", [one], "one.shape")], "ones")
        x = graph.node("Concat", [*parts, ones], "frames_to_add", axis=1)
        weight = graph.weight("synthesis", self._synthesis().astype(np.float32))
        added = graph.node("ConvTranspose", [x, weight], "added", kernel_shape=[config.n_fft], strides=[config.hop_len])
        half = config.n_fft // 2
        sides = []
        for at, name in ((0, "overlapped"), (1, "energy")):
            limits = [graph.integers(at, half), graph.integers(at + 1, -half), graph.integers(1, 2)]
            sides.append(graph.node("Slice", [added, *limits], name))
        return graph.node("Squeeze", [graph.node("Div", sides, "divided"), graph.integers(1)], "unlimited")

    def _synthesis(self) -> Array:
        """[19, 2, n_fft]: real and imaginary parts to windowed samples, the constant one to the
        window's square.
        """
        config, window = self._config, self._window()
        angle = 2 * np.pi * np.outer(np.arange(config.bins), np.arange(config.n_fft)) / config.n_fft
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
        graph, config, name = self.graph, self._config, f"levels.{level}"
        x = graph.node("LeakyRelu", [x], f"{name}.slope", alpha=config.lrelu_slope)
        rate, kernel = config.upsample_rates[level], config.upsample_kernel_sizes[level]
        weights = [
            graph.weight(f"ups.{level}.{kind}", self._tensors[f"ups.{level}.{kind}"]) for kind in ("weight", "bias")
        ]
        pads = [(kernel - rate) // 2] * 2
        x = graph.layer(
            f"ups.{level}",
            graph.node(
                "ConvTranspose", [x, *weights], f"ups.{level}", kernel_shape=[kernel], strides=[rate], pads=pads
            ),
        )
        if level == config.levels - 1:
            mirrored = graph.node(
                "Slice", [x, graph.integers(1), graph.integers(2), graph.integers(2)], f"{name}.mirrored"
            )
            x = graph.node("Concat", [mirrored, x], f"{name}.longer", axis=2)
        stride = config.source_stride(level)
        excitation = _convolution(
            graph, self._tensors, spectrum, f"source_downs.{level}", padding=stride // 2, stride=stride
        )
        kernel, dilations = config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level]
        excited = self._residual(excitation, f"source_resblocks.{level}", kernel, dilations)
        merged = graph.layer(f"{name}.merged", graph.node("Add", [x, excited], f"{name}.merged"))
        variants = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
        total = ""
        for at, (kernel, dilations) in enumerate(variants):
            block = self._residual(merged, f"resblocks.{len(variants) * level + at}", kernel, dilations)
            total = graph.node("Add", [total, block], f"{name}.sum{at}") if total else block
        return graph.layer(name, graph.node("Div", [total, graph.number(float(len(variants)))], name))

    def _residual(self, x: str, name: str, kernel: int, dilations: tuple[int, ...]) -> str:
        graph = self.graph
        for at, dilation in enumerate(dilations):
            y = self._snake(x, f"{name}.activations1.{at}")
            y = _convolution(
                graph, self._tensors, y, f"{name}.convs1.{at}", padding=kernel // 2 * dilation, dilation=dilation
            )
            y = self._snake(y, f"{name}.activations2.{at}")
            y = _convolution(graph, self._tensors, y, f"{name}.convs2.{at}", padding=kernel // 2)
            x = graph.node("Add", [x, y], f"{name}.{at}")
        return graph.layer(name, x)

    def _snake(self, x: str, name: str) -> str:
        """x + sin(alpha x)^2 / alpha."""
        graph, alpha = self.graph, self._tensors[f"{name}.alpha"][:, None]
        wave = graph.node(
            "Sin", [graph.node("Mul", [x, graph.weight(f"{name}.alpha", alpha)], f"{name}.angle")], f"{name}.sin"
        )
        wave = graph.node(
            "Mul",
            [
                graph.node("Mul", [wave, wave], f"{name}.square"),
                graph.weight(f"{name}.inverse", 1.0 / (alpha + np.float32(1e-9))),
            ],
            f"{name}.wave",
        )
        return graph.node("Add", [x, wave], name)
