"""A TensorRT plan from an ONNX graph.

The network is strongly typed: number types are those of the graph, whose writer has put a cast at
each border, and the builder changes none of them. `tensorrt` is imported late; written for TensorRT
10.13.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from cosyserve.errors import ModelError
from services.token2wav.engines.artifacts import HARDWARE, NO_COMPATIBILITY, VERSION
from services.token2wav.engines.shapes import Profile
from services.token2wav.engines.tensorrt import NO_START

T = TypeVar("T")


class Progress:
    """Prints each phase of a build with its share done; called from TensorRT's threads.

    stop: asked at each step; true cancels the build.
    """

    def __init__(self, name: str, to: TextIO | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        self._name, self._to, self._stop = name, to or sys.stderr, stop
        self._lock = threading.Lock()
        self._steps: dict[str, int] = {}
        self._printed = 0.0

    def begin(self, phase: str, steps: int) -> None:
        """A phase of `steps` steps."""
        with self._lock:
            self._steps[phase] = max(steps, 1)

    def step(self, phase: str, step: int) -> bool:
        """A step is done, counted from 0; False cancels the build. Prints once a second."""
        with self._lock:
            now = time.monotonic()
            if now - self._printed >= 1.0:
                self._printed = now
                share = (step + 1) / self._steps.get(phase, 1)
                print(f"{self._name}: {phase} {share:.0%}", file=self._to, flush=True)
        return not self._stop()

    def end(self, phase: str) -> None:
        """The phase is over."""
        with self._lock:
            self._steps.pop(phase, None)


def monitor(progress: Progress) -> Any:
    """TensorRT's own interface over `progress`; a class is made here because its parent is only
    there when TensorRT is.
    """
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # mypy has no types of tensorrt; pyright checks this file
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
            progress.begin(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return progress.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            progress.end(phase_name)

    return Monitor()


def interruptible(build: Callable[[Callable[[], bool]], T]) -> T:
    """What `build` returns, in another thread, so that this one can receive a Ctrl-C. `build`
    gets what its progress asks as `stop`, and after a KeyboardInterrupt is waited for."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="plan") as thread:
        try:
            return thread.submit(build, stopped.is_set).result()
        except BaseException:
            stopped.set()
            raise


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
