"""The weights of a model directory as the graphs take them."""

from pathlib import Path

import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.engine_identity import WEIGHTS
from services.token2wav.flow.weights import ESTIMATOR, FlowConfig, read_flow_tensors
from services.token2wav.vocoder.config import VocoderConfig, read_config
from services.token2wav.vocoder.weights import load_weights
from tools.model.graphs.graph import Array


def model_hash(model: Path) -> str:
    """As the services reckon it."""
    directory = ModelDirectory(model)
    return directory.content_hash((*WEIGHTS, directory.yaml_name))


def flow_weights(model: Path) -> tuple[dict[str, Array], FlowConfig]:
    """All tensors of `flow.pt`, float32. Raises ModelError naming file and tensor."""
    directory = ModelDirectory(model)
    config = FlowConfig.read(directory)
    tensors = read_flow_tensors(directory, config, torch.device("cpu"), torch.float32)
    return {name: tensor.numpy() for name, tensor in tensors.items()}, config


def estimator_weights(flow: dict[str, Array]) -> dict[str, Array]:
    """The estimator's, without prefix."""
    return {name.removeprefix(ESTIMATOR): tensor for name, tensor in flow.items() if name.startswith(ESTIMATOR)}


def vocoder_weights(model: Path) -> tuple[dict[str, Array], VocoderConfig]:
    """All tensors of `hift.pt`, float32, weight norm fused. Raises ModelError naming file and
    tensor.
    """
    directory = ModelDirectory(model)
    config = read_config(directory)
    return {name: tensor.numpy() for name, tensor in load_weights(directory, config).items()}, config
