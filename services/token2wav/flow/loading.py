"""Chooses and loads the network of a model directory's flow, by the name in the description of its
generation or decoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.dit import weights as dit_weights
from services.token2wav.flow.dit.estimator import DitNetwork
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.network import FlowNetwork, NetworkConfig
from services.token2wav.flow.past import PROMPT_AND_NEWEST, WHOLE_PAST, Past
from services.token2wav.flow.step_dit import weights as step_weights
from services.token2wav.flow.step_dit.estimator import StepDitNetwork
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.unet import weights as unet_weights
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig

Config = TypeVar("Config", bound=NetworkConfig)


@dataclass(frozen=True)
class NetworkFiles(Generic[Config]):
    """How a network is made of a model directory. Both readers raise ModelError naming what is
    wrong.

    config: reads the yaml. tensors: reads `flow.pt`, the estimator in the given type. network:
    builds the network from both. past: what served streams keep.
    """

    config: Callable[[ModelDirectory], Config]
    tensors: Callable[[ModelDirectory, Config, torch.device, torch.dtype], dict[str, Tensor]]
    network: Callable[[Config, Mapping[str, Tensor]], FlowNetwork]
    past: Past = WHOLE_PAST


NETWORKS: Mapping[str, NetworkFiles[Any]] = {
    "conformer-unet": NetworkFiles(UnetConfig.read, unet_weights.read_flow_tensors, UnetNetwork),
    "dit": NetworkFiles(DitConfig.read, dit_weights.read_flow_tensors, DitNetwork),
    "conformer-dit": NetworkFiles(
        StepDitConfig.read, step_weights.read_flow_tensors, StepDitNetwork, PROMPT_AND_NEWEST
    ),
}
"""By `Generation.flow_network` and `SeparateDecoder.flow_network`."""


def network_files(directory: ModelDirectory) -> NetworkFiles[Any]:
    """Those of the directory's generation or decoder. Raises ModelError for a network that is not
    known.
    """
    name = token2wav_networks(directory).flow_network
    if name not in NETWORKS:
        raise ModelError(
            f"{directory.path}: the flow's network {name!r} is not known; there are {', '.join(sorted(NETWORKS))}"
        )
    return NETWORKS[name]


def load_flow(directory: ModelDirectory, device: torch.device, dtype: torch.dtype = torch.float32) -> Flow:
    """Load `flow.pt` with the sizes in the yaml; `dtype` is the estimator's. Raises ModelError
    naming file and tensor.
    """
    files = network_files(directory)
    config = files.config(directory)
    return Flow(config, files.network(config, files.tensors(directory, config, device, dtype)), device, files.past)
