"""A TensorRT plan from an ONNX graph.

The network is strongly typed: number types are those of the graph, whose writer has put a cast at
each border, and the builder changes none of them. `tensorrt` is imported late; written for TensorRT
10.13.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosyserve.errors import ModelError
from services.token2wav.engines.artifacts import HARDWARE, NO_COMPATIBILITY, VERSION
from services.token2wav.engines.shapes import Profile
from services.token2wav.engines.tensorrt import NO_START
from tools.model.graphs.tensorrt_plan import Progress, monitor

if TYPE_CHECKING:
    import tensorrt as trt

log = logging.getLogger(__name__)


class PlanError(ModelError):
    """The graph could not be made a plan; says what TensorRT said."""


@dataclass(frozen=True)
class PlanOptions:
    """workspace_bytes: scratch memory that a layer may ask for. timing_cache: file of measured
    kernels, read and written, None: not kept. level: 0 to 5, how long the builder searches.
    compatibility: `services.token2wav.engines.artifacts`."""

    workspace_bytes: int = 4 << 30
    timing_cache: Path | None = None
    level: int = 3
    compatibility: str = NO_COMPATIBILITY


def build_plan(
    graph: Path, profiles: Sequence[Profile], options: PlanOptions, progress: Progress | None = None
) -> bytes:
    """The serialised plan. Blocks for minutes. Raises PlanError with TensorRT's words for a graph
    it does not take.
    """
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.WARNING)
    try:
        builder = trt.Builder(logger)
    except TypeError as error:  # how its bindings report that there is none
        raise PlanError(f"TensorRT {trt.__version__} cannot begin here: {NO_START}") from error
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(graph)):
        said = "; ".join(str(parser.get_error(at).desc()) for at in range(parser.num_errors))
        raise PlanError(f"{graph}: TensorRT {trt.__version__} does not take this graph: {said}")
    config = builder.create_builder_config()
    configure(config, options)
    add_profiles(builder, config, network, profiles)
    if progress is not None:
        config.progress_monitor = monitor(progress)
    cache = take_timing_cache(config, options.timing_cache)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise PlanError(
            f"{graph}: TensorRT {trt.__version__} built no plan; its log says why (out of memory: try a smaller "
            "--streams)"
        )
    keep_timing_cache(cache, options.timing_cache)
    return bytes(memoryview(plan))


def configure(config: "trt.IBuilderConfig", options: PlanOptions) -> None:
    """Limits and flags."""
    import tensorrt as trt

    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    config.builder_optimization_level = options.level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    # Products of float32 with 10-bit fractions: without this fp32 would not be what it says.
    config.clear_flag(trt.BuilderFlag.TF32)
    if VERSION in options.compatibility:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if HARDWARE in options.compatibility:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS


def add_profiles(
    builder: "trt.Builder", config: "trt.IBuilderConfig", network: "trt.INetworkDefinition", profiles: Sequence[Profile]
) -> None:
    """Raises PlanError where the graph's inputs are not those of the profiles, or a profile is
    refused.
    """
    import tensorrt as trt

    names = {network.get_input(at).name for at in range(network.num_inputs)}
    for profile in profiles:
        if names != profile.most.keys():
            raise PlanError(
                f"the graph's inputs are {', '.join(sorted(names))}; the profile has {', '.join(sorted(profile.most))}"
            )
        shapes = builder.create_optimization_profile()
        for name in profile.most:
            least, usual, most = (trt.Dims(list(shape[name])) for shape in (profile.least, profile.usual, profile.most))
            shapes.set_shape(name, least, usual, most)
        if config.add_optimization_profile(shapes) < 0:
            raise PlanError(f"TensorRT refused the profile {profile.text}")


def take_timing_cache(config: "trt.IBuilderConfig", path: Path | None) -> "trt.ITimingCache | None":
    """The kept measurements of another build, if they are this machine's; else an empty cache."""
    if path is None:
        return None
    try:
        stored = path.read_bytes()
    except OSError:
        stored = b""
    for content in (stored, b""):
        cache = config.create_timing_cache(content)
        if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
            return cache
    return None


def keep_timing_cache(cache: "trt.ITimingCache | None", path: Path | None) -> None:
    """Replaced at once, so that a reader sees the old one or the new one. Where that fails the next
    build measures again.
    """
    if cache is None or path is None:
        return
    partial = path.with_name(f".{path.name}-{time.monotonic_ns()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(bytes(memoryview(cache.serialize())))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        log.warning("what was measured is not kept: %s", error)
