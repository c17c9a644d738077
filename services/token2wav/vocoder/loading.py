"""Loads the vocoder of a model directory; the description of its generation or decoder says which
network it is.
"""

from collections.abc import Callable, Mapping

import torch

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.vocoder import load_causal_hift
from services.token2wav.vocoder.hift_vocoder import load_hift
from services.token2wav.vocoder.vocoder import Vocoder

Load = Callable[[ModelDirectory, torch.device, int | None], Vocoder]
NETWORKS: Mapping[str, Load] = {"hift": load_hift, "causal-hift": load_causal_hift}


def load_vocoder(directory: ModelDirectory, device: torch.device, hold_back_frames: int | None = None) -> Vocoder:
    """Raises ModelError naming file and key or tensor, or a network that is not known here.

    hold_back_frames: None holds back exactly what the samples depend on; a smaller number trades
    exactness for earlier first audio, where the network allows it.
    """
    network = token2wav_networks(directory).vocoder_network
    if network not in NETWORKS:
        raise ModelError(
            f"{directory.path}: the vocoder network {network} is not known; there are {', '.join(NETWORKS)}"
        )
    return NETWORKS[network](directory, device, hold_back_frames)
