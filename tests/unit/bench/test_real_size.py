"""Random weights of the published sizes: every tensor where it belongs, and a sound that is neither
silent nor clipped.
"""

from dataclasses import replace

import torch

from bench.real_size import DEMO, PUBLISHED_FLOW, flow_tensors, vocoder_tensors
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.unet.weights import expected_tensors
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.weights import fused, read_config


def test_the_flow_has_every_tensor() -> None:
    assert {name: tuple(tensor.shape) for name, tensor in flow_tensors().items()} == expected_tensors(PUBLISHED_FLOW)


def test_the_vocoder_speaks_without_clipping() -> None:
    config = replace(read_config(ModelDirectory(DEMO)), base_channels=512, f0_channels=512)
    vocoder = HiftVocoder(config, fused(vocoder_tensors()), torch.device("cpu"))
    samples = vocoder.offline(torch.randn(80, 20, generator=torch.Generator().manual_seed(0)), 1, 0)
    assert float(samples.std()) > 0.01
    assert float(samples.abs().max()) < 0.9 * config.audio_limit
