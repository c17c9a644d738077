"""`python -m tools.model.export MODEL [--precision fp16]`: the graphs of token2wav as ONNX files in
the engine cache.

The files are encoder, estimator, pitch and filter (`tools.model.graphs.*_graph` say what goes in
and out).
The same weights give the same bytes. What is there already is not made again; --out copies the
files to where they can be looked at.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import onnx
import torch

from cosyserve.engines.engine_cache import COMPONENTS, Engine, EngineCache
from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.engine_identity import WEIGHTS
from services.token2wav.engines.artifacts import OWN, PRECISIONS, graph_file, graphs_key, published_estimator
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.loading import network_files
from tools.model.graphs.calibration import scales_of
from tools.model.graphs.graph import Array, Precision, write
from tools.model.graphs.networks import flow_graphs, vocoder_graphs
from tools.model.graphs.velocity_graph import VelocityGraph, read_published
from tools.model.output.command import check_graphs, command, engine_cache, graphs_arguments, say
from tools.model.output.complete_directory import check_room
from tools.model.output.progress import in_units

_ROOM = 16 << 20


def graphs(model: Path, precision: Precision, published: Path | None = None) -> dict[str, onnx.ModelProto]:
    """All graphs of a model. published: an estimator to take as it is. Raises ModelError
    naming file and tensor.
    """
    metadata = {"model_hash": model_hash(model)}
    flow, config = flow_weights(model)
    writers, sound_writers = flow_graphs(ModelDirectory(model)), vocoder_graphs(ModelDirectory(model))
    if published is not None and not issubclass(writers.estimator, VelocityGraph):
        raise ModelError(f"{model}: no estimator is published with this flow; leave --published out")
    if published is None:
        tensors = estimator_weights(flow)
        scales = None
        if precision is Precision.FP8 and issubclass(writers.estimator, VelocityGraph):
            scales = scales_of(model, writers.estimator(tensors, config), config)
        try:
            estimator = writers.estimator(tensors, config, precision, scales=scales).model(metadata)
        except ValueError as error:
            raise ModelError(f"{model}: {error}; choose another --precision") from error
    else:
        estimator = read_published(published)
    vocoder, vocoder_config = sound_writers.weights(ModelDirectory(model))
    return {
        "encoder": writers.encoder(flow, config).model(metadata),
        "estimator": estimator,
        "pitch": sound_writers.pitch(vocoder, vocoder_config).model(metadata),
        "filter": sound_writers.filter(vocoder, vocoder_config).model(metadata),
    }


def export(model: Path, cache: EngineCache, precision: Precision, published: Path | None = None) -> Engine:
    """The cache's entry of this model's graphs, made if it is not there. Raises ModelError,
    OSError.
    """
    if published is not None and not published.is_file():
        raise ModelError(f"{published}: no such file")

    def build(directory: Path) -> None:
        # About what they take: at most the weights they are made of, in float32.
        check_room(directory, sum((model / name).stat().st_size for name in WEIGHTS) + _ROOM)
        for component, graph in graphs(model, precision, published).items():
            path = directory / graph_file(component)
            write(graph, path)
            say(f"{component}: {in_units(path.stat().st_size)} written")

    return cache.obtain(
        graphs_key(model_hash(model), precision.value, OWN if published is None else published_estimator(published)),
        build,
    )


def model_hash(model: Path) -> str:
    """As the services compute it."""
    directory = ModelDirectory(model)
    return directory.content_hash((*WEIGHTS, directory.yaml_name))


def flow_weights(model: Path) -> tuple[dict[str, Array], Any]:
    """All tensors of `flow.pt`, float32, and the configuration of its network. Raises ModelError
    naming file and tensor.
    """
    directory = ModelDirectory(model)
    files = network_files(directory)
    config = files.config(directory)
    tensors = files.tensors(directory, config, torch.device("cpu"), torch.float32)
    return {name: tensor.numpy() for name, tensor in tensors.items()}, config


def estimator_weights(flow: dict[str, Array]) -> dict[str, Array]:
    """The estimator's, without prefix."""
    return {name.removeprefix(ESTIMATOR): tensor for name, tensor in flow.items() if name.startswith(ESTIMATOR)}


@command(
    "export",
    "Write the graphs of token2wav as ONNX files.",
    {
        **graphs_arguments(PRECISIONS, "fp32"),
        "--out": {"type": Path, "metavar": "DIR", "help": "copy the files there as well"},
    },
)
def main(options: argparse.Namespace) -> int:
    check_graphs(options)
    stored = export(options.model, engine_cache(options), Precision(options.precision), options.published)
    for component in COMPONENTS:
        path = stored.file(graph_file(component))
        print(f"{path}  {path.stat().st_size} bytes")
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            unfinished = options.out / f"{path.name}.part"
            shutil.copyfile(path, unfinished)
            unfinished.replace(options.out / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
