"""Which graphs the vocoder of a model directory has, by the network of its generation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.weights import NETWORK as CAUSAL
from services.token2wav.vocoder.causal.weights import read_config as read_causal_config
from services.token2wav.vocoder.causal.weights import read_weights as read_causal_weights
from services.token2wav.vocoder.weights import VocoderConfig, load_weights, read_config
from tools.model.graphs.causal_vocoder_graph import CausalFilterGraph, CausalPitchGraph
from tools.model.graphs.graph import Array
from tools.model.graphs.vocoder_graph import FilterGraph, PitchGraph


@dataclass(frozen=True)
class VocoderGraphs:
    """pitch: what makes f0; filter: what makes samples; and the reading of their weights."""

    pitch: type[PitchGraph]
    filter: type[FilterGraph]
    read_config: Callable[[ModelDirectory], VocoderConfig]
    read_weights: Callable[[ModelDirectory, Any], dict[str, Tensor]]

    def weights(self, directory: ModelDirectory) -> tuple[dict[str, Array], VocoderConfig]:
        """All tensors of `hift.pt`, float32, weight norm fused. Raises ModelError naming file and
        tensor.
        """
        config = self.read_config(directory)
        return {name: tensor.float().numpy() for name, tensor in self.read_weights(directory, config).items()}, config


_GRAPHS: Mapping[str, VocoderGraphs] = {
    "hift": VocoderGraphs(PitchGraph, FilterGraph, read_config, load_weights),
    CAUSAL: VocoderGraphs(CausalPitchGraph, CausalFilterGraph, read_causal_config, read_causal_weights),
}


def vocoder_graphs(directory: ModelDirectory) -> VocoderGraphs:
    """Those of the directory's generation or decoder. Raises ModelError for a network without
    graphs.
    """
    name = token2wav_networks(directory).vocoder_network
    if name not in _GRAPHS:
        raise ModelError(
            f"{directory.path}: the vocoder's network {name!r} has no graphs; there are {', '.join(_GRAPHS)}"
        )
    return _GRAPHS[name]
