"""Loads the windowed vocoder of a model directory; the description of its generation says which
network it is.
"""

from typing import Any

import torch

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.gpu.windowed_vocoder.networks import NETWORKS
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder


def load_windowed(directory: ModelDirectory, device: torch.device, **options: Any) -> WindowedVocoder:
    """options: of `WindowedVocoder`. Raises ModelError naming file and key or tensor, Unsuitable
    for a network without kernels.
    """
    name = token2wav_networks(directory).vocoder_network
    if name not in NETWORKS:
        raise Unsuitable(
            f"gpu_vocoder windowed runs the vocoder networks {', '.join(NETWORKS)}; that of {directory.path} is {name}"
        )
    network = NETWORKS[name]
    config = network.read_config(directory)
    weights = network.read_weights(directory, config)
    return WindowedVocoder(config, weights, device, network=network, **options)
