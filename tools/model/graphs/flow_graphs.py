"""Which graphs the flow of a model directory has, by the network of its generation."""

from collections.abc import Mapping
from dataclasses import dataclass

from cosyserve.errors import ModelError
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from tools.model.graphs.dit_graph import DitGraph
from tools.model.graphs.encoder_graph import EncoderGraph
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.look_ahead_graph import LookAheadGraph
from tools.model.graphs.velocity_graph import VelocityGraph


@dataclass(frozen=True)
class FlowGraphs:
    """encoder: what makes mu; estimator: what makes velocities."""

    encoder: type[EncoderGraph] | type[LookAheadGraph]
    estimator: type[VelocityGraph]


_GRAPHS: Mapping[str, FlowGraphs] = {
    "conformer-unet": FlowGraphs(EncoderGraph, EstimatorGraph),
    "dit": FlowGraphs(LookAheadGraph, DitGraph),
}


def flow_graphs(directory: ModelDirectory) -> FlowGraphs:
    """Those of the directory's generation. Raises ModelError for a network without graphs."""
    name = generation_of(directory).flow_network
    if name not in _GRAPHS:
        raise ModelError(f"{directory.path}: the flow's network {name!r} has no graphs; there are {', '.join(_GRAPHS)}")
    return _GRAPHS[name]
