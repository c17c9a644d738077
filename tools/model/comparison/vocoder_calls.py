"""What the graphs of a vocoder compute, by the torch path, and which of its methods make the layers
of the graphs; by network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.model_directory import ModelDirectory
from services.token2wav.engines.shapes import frames_around
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.network import CausalFilterNetwork, CausalLevel, CausalResidualBlock
from services.token2wav.vocoder.causal.source import CausalPitch
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.causal.weights import PITCH_LOOKAHEAD
from services.token2wav.vocoder.hift import FilterNetwork, Level, ResidualBlock
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.source import F0Predictor
from tools.model.comparison.method_outputs import Method

Layers = Mapping[Method, str]
"""The layers of a method's results are those whose names contain its part."""


@dataclass(frozen=True)
class VocoderCalls:
    """A vocoder's networks as functions of the graphs' inputs. ahead: frames of mel behind those
    whose samples are computed.
    """

    ahead: int
    pitch: Callable[[Tensor], Tensor]
    """mel [B, 80, n] -> f0 [B, n]."""
    samples: Callable[[Tensor, Tensor], Tensor]
    """mel [B, 80, n + ahead], source [B, 480 n] -> [B, 480 n], of a whole sentence."""
    pitch_layers: Layers
    filter_layers: Layers


def vocoder_calls(directory: ModelDirectory) -> VocoderCalls:
    """Of the directory's vocoder on the CPU. Raises ModelError as `load_vocoder`."""
    vocoder, ahead = load_vocoder(directory, torch.device("cpu")), frames_around(directory).ahead
    if isinstance(vocoder, CausalVocoder):
        return _causal(vocoder, ahead)
    if isinstance(vocoder, HiftVocoder):
        return _hift(vocoder, ahead)
    raise TypeError(f"the networks of {type(vocoder).__name__} have no graphs")


def _hift(vocoder: HiftVocoder, ahead: int) -> VocoderCalls:
    return VocoderCalls(
        ahead,
        vocoder.f0,
        lambda mel, source: vocoder.filter(mel, source, 0, mel.shape[2]),
        {(F0Predictor, "layer"): "condnet."},
        {
            (ResidualBlock, "__call__"): "resblocks.",
            (Level, "__call__"): "levels.",
            (FilterNetwork, "conv_pre"): "conv_pre",
            (FilterNetwork, "conv_post"): "conv_post",
        },
    )


def _causal(vocoder: CausalVocoder, ahead: int) -> VocoderCalls:
    return VocoderCalls(
        ahead,
        lambda mel: vocoder.f0(F.pad(mel, (0, PITCH_LOOKAHEAD)), History()),
        lambda mel, source: vocoder.filter(mel, source, History(), True),
        {(CausalPitch, "layer"): "condnet."},
        {
            (CausalResidualBlock, "__call__"): "resblocks.",
            (CausalLevel, "__call__"): "levels.",
            (CausalFilterNetwork, "conv_pre"): "conv_pre",
            (CausalFilterNetwork, "planes"): "conv_post",
        },
    )
