"""`python -m tools.model.verify token2wav MODEL [--precision fp16] [--runtime tensorrt]`: do
graphs, or the plans that are served, compute what the torch path computes?

Each computes every case of `tools.model.comparison.graph_cases`. When a result is too far off, the
graph is run again with the layers' values as outputs, and the first layer that differs is named.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import onnx
import torch

from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.engines.engine_cache import COMPONENTS, EngineCache
from cosyserve.engines.engine_cache import Engine as CachedEngine
from cosyserve.errors import SettingsError
from cosyserve.file_lock import shared_engine_lock
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.engine_identity import device_of
from services.token2wav.engines.artifacts import (
    COMPATIBILITIES,
    NO_COMPATIBILITY,
    OWN,
    PRECISIONS,
    VERSION,
    build_command,
    graph_file,
    plan_file,
    plan_key,
)
from services.token2wav.engines.model_profiles import model_profiles
from services.token2wav.engines.slots import Slots
from services.token2wav.engines.tensorrt import TensorRTEngine, machine_facts, tensorrt_library
from tools.model.comparison.graph_cases import MOST_STREAMS, Case, Reference
from tools.model.comparison.graph_comparison import compare
from tools.model.export import export
from tools.model.graphs.execute import Execute, by_tensorrt, on_cpu, on_cuda, once
from tools.model.graphs.graph import Precision
from tools.model.output.command import JSON_RESULT, check_graphs, command, engine_cache, graphs_arguments, say
from tools.model.output.progress import Step
from tools.verify.report import Report, print_result

_GPU_FACTOR = 50.0
"""Other kernels round differently: on a GPU as many times the CPU's tolerance in float32 is
allowed.
"""
RUNTIMES = ("cpu", "cuda", "tensorrt")


def cached_plans(
    options: argparse.Namespace,
    cache: EngineCache,
    graphs: CachedEngine,
    device: torch.device,
    held: ExitStack,
) -> dict[str, TensorRTEngine]:
    """The plans that a service of these settings would load. Raises SettingsError naming the
    command that builds what is missing.
    """
    machine, masked = machine_facts(device, tensorrt_library().__version__), graphs.key.facts["estimator"] == OWN
    plans = {}
    for component, shapes in model_profiles(ModelDirectory(options.model), options.streams, masked=masked).items():
        entry = cache.find(plan_key(component, graphs.key, machine, shapes, options.compatibility))
        if not isinstance(entry, CachedEngine):
            chosen = options.model, options.precision, options.published, options.engines
            command = build_command(
                *chosen, streams=options.streams, compatibility=options.compatibility, device=options.device
            )
            why = (
                f"{cache.root}: no {component} plan for this model and machine"
                if entry is None
                else f"{entry.directory}: {entry.reason}"
            )
            raise SettingsError(f"{why}; make it with: {command}")
        held.enter_context(shared_engine_lock(entry.directory))
        host_code = VERSION in options.compatibility
        plans[component] = TensorRTEngine(
            component, entry.file(plan_file(component)), device, shapes, host_code=host_code
        )
        say(f"{component}: {entry.file(plan_file(component))}")
    return plans


def verify(options: argparse.Namespace) -> tuple[Report, list[str]]:
    """As `compare`, of what the options name; cases are printed as they are run. Raises
    SettingsError, ModelError, OSError.
    """
    precision, cache = Precision(options.precision), engine_cache(options)
    executors, engines, factor = on_cpu(precision), dict[str, Execute](), 1.0
    if options.runtime == "cuda":
        executors, factor = dict.fromkeys(COMPONENTS, on_cuda()), _GPU_FACTOR
    reference = Reference(options.model)
    graphs = export(options.model, cache, precision, options.published)
    masked = graphs.key.facts["estimator"] == OWN
    with ExitStack() as held, Step() as step:
        held.enter_context(shared_engine_lock(graphs.directory))
        models = {component: onnx.load(str(graphs.file(graph_file(component)))) for component in COMPONENTS}
        if options.runtime == "tensorrt":
            device = _gpu(options.device)
            slots, factor = Slots(device, 1), _GPU_FACTOR
            plans = cached_plans(options, cache, graphs, device, held)
            engines = {component: partial(once, plan, slots) for component, plan in plans.items()}
            shapes = model_profiles(ModelDirectory(options.model), MOST_STREAMS, masked=masked)
            executors = dict.fromkeys(COMPONENTS, by_tensorrt(shapes, device, slots))

        def announced() -> Iterator[Case]:
            for case in reference.cases(masked=masked, most=options.streams):
                step.now(f"{case.component}: {case.name}")
                yield case

        return compare(models, announced(), reference, executors, precision, engines=engines, factor=factor)


def _gpu(name: str) -> torch.device:
    tensorrt_library()
    device = device_of(name)
    if device.type != "cuda":
        raise SettingsError(f"plans run on a GPU; device is {device}")
    return device


@command(
    "verify token2wav",
    "Compare graphs or plans with the torch path.",
    {
        **graphs_arguments(PRECISIONS, "fp32"),
        "--runtime": {
            "choices": RUNTIMES, "default": "cpu",
            "help": "who computes; cuda: ONNX Runtime there (default: %(default)s)"
        },
        "--device": {"default": "cuda", "metavar": "NAME", "help": "of TensorRT (default: %(default)s)"},
        "--streams": {
            "type": int, "default": 16, "metavar": "N", "help": "that the plans were built for (default: %(default)s)"
        },
        "--compatibility": {
            "choices": COMPATIBILITIES, "default": NO_COMPATIBILITY,
            "help": "that the plans were built for (default: %(default)s)"
        },
        **JSON_RESULT,
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    check_graphs(options)
    if options.streams < 1:
        raise WrongUsage(f"--streams is {options.streams}; at least 1 is needed")
    return print_result(*verify(options), as_json=options.json)
