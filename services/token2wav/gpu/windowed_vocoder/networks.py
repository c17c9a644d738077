"""The vocoder networks that are rendered in windows, each described by what differs from the
others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.gpu.windowed_vocoder.convolutions import (
    Lead,
    Raising,
    backward,
    centred,
    forward,
    repeating,
    transposed,
)
from services.token2wav.gpu.windowed_vocoder.shapes import WindowShape, causal_shape, hift_shape
from services.token2wav.gpu.windowed_vocoder.sources import HeldSource, InterpolatedSource
from services.token2wav.vocoder.causal.weights import NETWORK as CAUSAL
from services.token2wav.vocoder.causal.weights import read_config as read_causal_config
from services.token2wav.vocoder.causal.weights import read_weights as read_causal_weights
from services.token2wav.vocoder.weights import VocoderConfig, load_weights, read_config


@dataclass(frozen=True)
class Network:
    """What differs from one vocoder network to the other."""

    read_config: Callable[[ModelDirectory], VocoderConfig]
    read_weights: Callable[[ModelDirectory, Any], dict[str, Tensor]]
    shape: Callable[[Any, int], WindowShape]
    """Of windows of so many frames."""
    first_lead: Lead
    """Of the first convolution of the filter and of the pitch predictor."""
    lead: Lead
    """Of the other convolutions."""
    raising: Raising
    source: type[InterpolatedSource] | type[HeldSource]


HIFT = Network(read_config, load_weights, hift_shape, centred, centred, transposed, InterpolatedSource)
CAUSAL_HIFT = Network(read_causal_config, read_causal_weights, causal_shape, forward, backward, repeating, HeldSource)
NETWORKS = {"hift": HIFT, CAUSAL: CAUSAL_HIFT}
"""By `Generation.vocoder_network`."""
