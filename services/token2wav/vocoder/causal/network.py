"""The filter network of causal HiFT: mel and source in, samples out, piece by piece.

Every convolution but the first looks back only and keeps its last columns (`convolutions`). Source:
compatibility specification of CosyVoice3, section 5.4.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.causal.convolutions import (
    CausalConvolution,
    History,
    RaisingConvolution,
    StridedConvolution,
    side_by_side,
)
from services.token2wav.vocoder.causal.weights import PITCH, CausalVocoderConfig
from services.token2wav.vocoder.hift import (
    LARGEST_MAGNITUDE,
    LAST_SLOPE,
    Convolution,
    Snake,
    Spectrum,
    Weights,
    columnwise,
)
from services.token2wav.vocoder.receptive_field import Span


class CausalResidualBlock:
    """For each dilation: x plus the plain convolution of snake of the dilated convolution of snake
    of x.
    """

    def __init__(self, weights: Weights, name: str, dilations: tuple[int, ...]) -> None:
        self._layers = [
            (
                Snake(weights[f"{name}.activations1.{i}.alpha"][:, None]),
                CausalConvolution(weights, f"{name}.convs1.{i}", dilation=dilation),
                Snake(weights[f"{name}.activations2.{i}.alpha"][:, None]),
                CausalConvolution(weights, f"{name}.convs2.{i}"),
            )
            for i, dilation in enumerate(dilations)
        ]

    def __call__(self, x: Tensor, history: History, stop: Stop = never) -> Tensor:
        """[B, C, T] -> [B, C, T]. Polls `stop` before each dilation."""
        for snake1, spread, snake2, plain in self._layers:
            raise_if_stopped(stop)
            x = x + plain(snake2(spread(snake1(x), history)), history)
        return x


class CausalLevel:
    """One upsampling level and the excitation that is added to it."""

    def __init__(self, config: CausalVocoderConfig, weights: Weights, level: int) -> None:
        self._slope, self._last = config.lrelu_slope, level == config.levels - 1
        self._up = RaisingConvolution(weights, f"ups.{level}", config.upsample_rates[level])
        self.down = StridedConvolution(weights, f"source_downs.{level}", config.source_stride(level))
        self.source_block = CausalResidualBlock(
            weights, f"source_resblocks.{level}", config.source_resblock_dilation_sizes[level]
        )
        first = len(config.resblock_kernel_sizes) * level
        self._blocks = [
            CausalResidualBlock(weights, f"resblocks.{first + i}", dilations)
            for i, dilations in enumerate(config.resblock_dilation_sizes)
        ]

    def __call__(self, x: Tensor, spectrum: Tensor, history: History, stop: Stop = never) -> Tensor:
        """x [B, C, T] -> [B, C / 2, rate * T]; the last level makes one column more of the first
        piece of a sentence.
        """
        merged = self.merged(x, spectrum, history, stop)
        total = self._blocks[0](merged, history, stop)
        for block in self._blocks[1:]:
            total = total + block(merged, history, stop)
        return total / len(self._blocks)

    def merged(self, x: Tensor, spectrum: Tensor, history: History, stop: Stop = never) -> Tensor:
        """The sum that the residual blocks get."""
        return self.raised(x, history) + self.source_block(self.down(spectrum, history), history, stop)

    def raised(self, x: Tensor, history: History) -> Tensor:
        """Upsampled. In the last level a sentence begins with a mirror image: column 0 is column
        2.
        """
        y = self._up(F.leaky_relu(x, self._slope), history)
        return side_by_side(y[..., 1:2], y) if self._last and not history.begun else y


class CausalFilterNetwork:
    """Weights only. A piece of n frames makes the samples that it determines: 480 n, of which the
    first piece has `late` less and the last one of a sentence `late` more.
    """

    context_frames = 0
    """Frames that are computed again for the sake of later ones: none, columns are kept."""

    def __init__(self, config: CausalVocoderConfig, weights: Weights, device: torch.device) -> None:
        weights = {name: tensor.to(device) for name, tensor in weights.items() if not name.startswith(PITCH)}
        self._config, self._limit, self._bins = config, config.audio_limit, config.bins
        self._half, self._hop = config.n_fft // 2, config.hop_len
        self.spectrum = Spectrum(config.n_fft, config.hop_len, device)
        self._pre = Convolution(weights, "conv_pre")
        self.levels = [CausalLevel(config, weights, level) for level in range(config.levels)]
        self._post = CausalConvolution(weights, "conv_post")
        self.late = self._half - self._hop - 1
        """Samples of a frame that the frame after it contributes to, the next frame of the inverse
        transform; the first value of its window is 0.
        """

    def __call__(self, mel: Tensor, source: Tensor, history: History, ended: bool, stop: Stop = never) -> Tensor:
        """Samples [B, m] within the audio limit.

        mel: [B, 80, n + 4], the frames of the piece and the four after them, zeros behind the last
        one of the sentence. source: [B, k], all that has been generated and was not passed before;
        it has to reach half a transform beyond the piece, unless the sentence has `ended`. Raises
        Cancelled if `stop` returns True between two convolutions.
        """
        frames = mel.shape[2] - self._config.conv_pre_look_right
        # TensorFloat-32 rounds differently from one batch shape to the next.
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            planes = self.planes(mel, self.analysed(source, frames, history, ended), history, stop)
        return self.synthesised(planes, frames, history, ended)

    def analysed(self, source: Tensor, frames: int, history: History, ended: bool) -> Tensor:
        """The spectrum [B, 18, 120 n] of a piece of n frames, one column more at the beginning of
        the sentence, where the mirror image of the source is analysed, as behind its end.
        """
        # Column j of a sentence is centred on sample j * hop; a piece after n frames begins with
        # the column after the one that is centred on sample 480 n.
        begin = 0 if history.begun else self._half - self._hop
        end = SAMPLES_PER_MEL_FRAME * frames + self._half + (self._half - self._hop if history.begun else 0)
        known = history.extended_signal("source", source, SAMPLES_PER_MEL_FRAME * frames - begin)
        piece = known[:, :end]
        before, after = 0 if history.begun else self._half, self._half if ended else 0
        if before or after:
            piece = F.pad(piece, (before, after), mode="reflect")
        return self.spectrum.of(piece)

    def conv_pre(self, mel: Tensor) -> Tensor:
        """[B, 80, n + 4] -> [B, base channels, n]."""
        return self._pre(columnwise(mel))

    def planes(self, mel: Tensor, spectrum: Tensor, history: History, stop: Stop = never) -> Tensor:
        """The network up to the log-magnitude and phase planes: [B, 18, columns of the
        spectrum].
        """
        x = self.conv_pre(mel)
        for level in self.levels:
            x = level(x, spectrum, history, stop)
        return self._post(F.leaky_relu(x, LAST_SLOPE), history)

    def synthesised(self, planes: Tensor, frames: int, history: History, ended: bool) -> Tensor:
        """Samples [B, m] of the planes of a piece of `frames` frames."""
        overlap = self._config.n_fft // self._hop - 1
        begun = history.begun
        planes = history.extended("planes", planes, overlap, zeros=0)
        magnitude = torch.exp(planes[:, : self._bins]).clamp(max=LARGEST_MAGNITUDE)
        angle = torch.sin(planes[:, self._bins :])
        # Columns and samples are counted from the beginning of the piece.
        first = 1 - overlap if begun else 0
        held = Span(first, first + planes.shape[2])
        samples = Span(-self.late if begun else 0, SAMPLES_PER_MEL_FRAME * frames - (0 if ended else self.late))
        return self.spectrum.synthesise(magnitude, angle, held, samples).clamp_(-self._limit, self._limit)
