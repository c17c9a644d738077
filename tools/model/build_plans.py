"""`python -m tools.model.build token2wav MODEL [--precision fp16] [--streams 16]`: TensorRT plans
of token2wav in the engine cache.

Exports the graphs first if they are not there. Each plan is kept as soon as it is built, so a build
that was stopped is resumed. Plans are for this GPU, driver and TensorRT alone.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.engines.engine_cache import EngineCache
from cosyserve.errors import SettingsError
from cosyserve.file_lock import shared_engine_lock
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.engine_identity import device_of
from services.token2wav.engines.artifacts import (
    COMPATIBILITIES,
    NO_COMPATIBILITY,
    OWN,
    PRECISIONS,
    graph_file,
    plan_file,
    plan_key,
)
from services.token2wav.engines.model_profiles import model_profiles
from services.token2wav.engines.shapes import Profile
from services.token2wav.engines.tensorrt import machine_facts, on_device, tensorrt_library
from tools.model.export import export
from tools.model.graphs.graph import Precision
from tools.model.graphs.tensorrt_plan import PlanOptions, Progress, build_plan, interruptible
from tools.model.output.command import check_graphs, command, engine_cache, graphs_arguments
from tools.model.output.complete_directory import check_room

_GIB = 1 << 30
_OLDEST = {Precision.BF16: (8, 0), Precision.FP8: (8, 9)}
"""Compute capability from which on a GPU multiplies in a type."""


def build(
    model: Path,
    cache: EngineCache,
    precision: Precision,
    streams: int,
    options: PlanOptions,
    device: torch.device,
    published: Path | None,
) -> list[Path]:
    """The plans of all graphs, those that are not there built. Raises SettingsError,
    ModelError, OSError.
    """
    library = tensorrt_library()
    if device.type != "cuda":
        raise SettingsError(f"plans are built on the GPU that runs them; device is {device}")
    machine = machine_facts(device, library.__version__)
    check_precision(precision, machine["gpu"], machine["compute_capability"])
    graphs = export(model, cache, precision, published)
    built = model_profiles(ModelDirectory(model), streams, masked=graphs.key.facts["estimator"] == OWN)
    plans = []
    with shared_engine_lock(graphs.directory):
        for component, shapes in built.items():
            began = time.monotonic()
            write = partial(_write, graphs.file(graph_file(component)), component, shapes, options, device)
            entry = cache.obtain(plan_key(component, graphs.key, machine, shapes, options.compatibility), write)
            print(
                f"{entry.file(plan_file(component))}  {entry.bytes} bytes  {time.monotonic() - began:.1f} s", flush=True
            )
            plans.append(entry.file(plan_file(component)))
    return plans


def check_precision(precision: Precision, gpu: str, capability: str) -> None:
    """Raise SettingsError where the GPU has no products of that type, before minutes go by."""
    major, minor = _OLDEST.get(precision, (0, 0))
    if tuple(map(int, capability.split("."))) < (major, minor):
        raise SettingsError(
            f"{precision.value} needs compute capability {major}.{minor} or later, {gpu} has {capability}; choose "
            "--precision fp16"
        )


def _write(
    graph: Path, component: str, shapes: Sequence[Profile], options: PlanOptions, device: torch.device, directory: Path
) -> None:
    check_room(directory, 2 * graph.stat().st_size)

    def build(stop: Callable[[], bool]) -> bytes:
        with on_device(device):
            return build_plan(graph, shapes, options, Progress(component, stop=stop))

    (directory / plan_file(component)).write_bytes(interruptible(build))


@command(
    "build",
    "Build the TensorRT plans of token2wav for this GPU.",
    {
        **graphs_arguments(PRECISIONS, "fp16"),
        "--streams": {
            "type": int, "default": 16, "metavar": "N",
            "help": "most streams in a batch, 1 to 64 (default: %(default)s)"
        },
        "--device": {"default": "cuda", "metavar": "NAME", "help": "cuda or cuda:N (default: %(default)s)"},
        "--workspace": {
            "type": float, "default": 4.0, "metavar": "GIB", "help": "scratch memory for a layer (default: %(default)s)"
        },
        "--level": {
            "type": int, "default": 3, "choices": range(6), "metavar": "0-5",
            "help": "how long to search (default: %(default)s)"
        },
        "--compatibility": {
            "choices": COMPATIBILITIES, "default": NO_COMPATIBILITY,
            "help": "plans for other GPUs or versions too, slower ones (default: %(default)s)"
        },
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    if not 1 <= options.streams <= 64:
        raise WrongUsage(f"--streams is {options.streams}; 1 to 64 is allowed")
    if not 0.1 <= options.workspace <= 1024:
        raise WrongUsage(f"--workspace is {options.workspace:g}; 0.1 to 1024 GiB is allowed")
    check_graphs(options)
    cache = engine_cache(options)
    plan_options = PlanOptions(
        workspace_bytes=int(options.workspace * _GIB),
        timing_cache=cache.root / "timing.cache",
        level=options.level,
        compatibility=options.compatibility,
    )

    tensorrt_library()
    device = device_of(options.device)
    build(options.model, cache, Precision(options.precision), options.streams, plan_options, device, options.published)
    return 0
