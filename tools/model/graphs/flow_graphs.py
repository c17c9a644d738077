"""Which graphs the flow of a model directory has, by the network of its generation or
decoder."""

from collections.abc import Mapping
from dataclasses import dataclass

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from tools.model.graphs.chunks.encoder_chunk_graph import EncoderChunkGraph
from tools.model.graphs.chunks.step_dit_graph import StepDitGraph
from tools.model.graphs.dit_graph import DitGraph
from tools.model.graphs.encoder_graph import EncoderGraph
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.look_ahead_graph import LookAheadGraph
from tools.model.graphs.velocity_graph import VelocityGraph


@dataclass(frozen=True)
class FlowGraphs:
    """encoder: what makes mu; estimator: what makes velocities."""

    encoder: type[EncoderGraph] | type[LookAheadGraph]
    estimator: type[VelocityGraph] | type[StepDitGraph]


_GRAPHS: Mapping[str, FlowGraphs] = {
    "conformer-unet": FlowGraphs(EncoderGraph, EstimatorGraph),
    "dit": FlowGraphs(LookAheadGraph, DitGraph),
    "conformer-dit": FlowGraphs(EncoderChunkGraph, StepDitGraph),
}


def flow_graphs(directory: ModelDirectory) -> FlowGraphs:
    """Those of the directory's generation or decoder. Raises ModelError for a network without
    graphs.
    """
    name = token2wav_networks(directory).flow_network
    if name not in _GRAPHS:
        raise ModelError(f"{directory.path}: the flow's network {name!r} has no graphs; there are {', '.join(_GRAPHS)}")
    return _GRAPHS[name]
