"""A fake of the package tensorrt that refuses what the real one refuses and computes by ONNX
Runtime, through addresses.

A plan is the ONNX file preceded by the profiles. Every execution records its shapes. Broken rules
are AssertionErrors: an address or shape that was not set, scratch memory that two executions use at
once, a context in two threads.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime

__version__ = "10.13.0.35"
MAGIC = b"plan of the test\n"
DataType = Enum("DataType", "FLOAT HALF BF16 INT32 INT64 BOOL", start=0)
TensorIOMode = Enum("TensorIOMode", "INPUT OUTPUT", start=0)
ExecutionContextAllocationStrategy = Enum(
    "ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE USER_MANAGED", start=0
)
NetworkDefinitionCreationFlag = IntEnum("NetworkDefinitionCreationFlag", "EXPLICIT_BATCH STRONGLY_TYPED", start=0)
BuilderFlag = Enum("BuilderFlag", "TF32 VERSION_COMPATIBLE", start=0)
MemoryPoolType = Enum("MemoryPoolType", "WORKSPACE", start=0)
HardwareCompatibilityLevel = Enum("HardwareCompatibilityLevel", "NONE AMPERE_PLUS", start=0)
ProfilingVerbosity = Enum("ProfilingVerbosity", "DETAILED", start=0)
_TYPES = {
    "tensor(float)": (DataType.FLOAT, np.float32),
    "tensor(int32)": (DataType.INT32, np.int32),
    "tensor(bool)": (DataType.BOOL, np.bool_),
    "tensor(float16)": (DataType.HALF, np.float16),
}
"""Of a graph's tensor: the library's type and NumPy's."""
Dims = list[int]
IProgressMonitor = object


class Logger(int):
    """Its level."""

    WARNING = 2


@dataclass
class Record:
    """Everything that happened since `clear`."""

    executions: list[tuple[str, dict[str, tuple[int, ...]]]] = field(default_factory=list)
    """Of which engine, and its shapes."""
    host_code: list[bool] = field(default_factory=list)
    """Of each plan that was read, whether it may bring code for the CPU."""
    most_at_once: int = 0
    refusals: Iterator[bool] = field(default_factory=lambda: repeat(False))
    """Whether the next execution is refused."""
    slow: float = 0.0
    """Seconds that each execution takes."""
    steps: int = 2
    """Of a build."""
    first_step: Callable[[], object] = lambda: None
    """Called by the builder behind it."""
    stopped: int = 0
    """Builds that their monitor stopped."""
    no_profile: bool = False
    """No profile can be chosen."""
    no_scratch: bool = False
    """The size of the scratch memory cannot be determined, which a 0 reports."""
    driver: bool = True
    """Without one neither runtime nor builder can be made."""

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


record = Record()
_running: dict[int, str] = {}
_lock = threading.Lock()


def begun(logger: Logger) -> None:
    assert isinstance(logger, Logger)
    if not record.driver:
        raise TypeError("pybind11::init(): factory function returned nullptr")


class Runtime:
    def __init__(self, logger: Logger) -> None:
        begun(logger)
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, plan: bytes) -> "Engine | None":
        record.host_code.append(self.engine_host_code_allowed)
        return Engine(plan) if plan.startswith(MAGIC) else None


class Engine:
    def __init__(self, plan: bytes) -> None:
        profiles, _, graph = plan.removeprefix(MAGIC).partition(b"\n")
        self.profiles = json.loads(profiles)
        self.name = onnx.load_from_string(graph).graph.name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.entries = {entry.name: entry for entry in (*self.session.get_inputs(), *self.session.get_outputs())}
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.outputs = [entry.name for entry in self.session.get_outputs()]
        self.num_io_tensors = len(self.entries)
        self.num_optimization_profiles = len(self.profiles)

    def get_tensor_name(self, at: int) -> str:
        return list(self.entries)[at]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self.entries[name].type][0]

    def numpy_type(self, name: str) -> Any:
        return _TYPES[self.entries[name].type][1]

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(length if isinstance(length, int) else -1 for length in self.entries[name].shape)

    def get_tensor_profile_shape(self, name: str, at: int) -> list[Dims]:
        return [Dims(shape) for shape in self.profiles[at][name]]

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return 1 << 20

    def create_execution_context(self, strategy: ExecutionContextAllocationStrategy) -> "Context":
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        return Context(self)


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.profile: int | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.scratch = (0, 0)
        self.busy = False

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        if record.no_profile or not 0 <= profile < len(self.engine.profiles):
            raise RuntimeError("Error in set optimization profile.")
        self.profile, self.shapes = profile, {}
        return True

    def set_input_shape(self, name: str, shape: list[int]) -> bool:
        assert self.profile is not None, "a shape before the profile"
        least, _, most = self.engine.profiles[self.profile][name]
        if len(shape) != len(most) or not all(
            low <= at <= high for low, at, high in zip(least, shape, most, strict=True)
        ):
            return False
        self.shapes[name] = tuple(shape)
        return True

    def infer_shapes(self) -> list[str]:
        missing = [name for name in self.engine.inputs if name not in self.shapes]
        if not missing:
            given = {name: np.zeros(shape, self.engine.numpy_type(name)) for name, shape in self.shapes.items()}
            for name, made in zip(self.engine.outputs, self.engine.session.run(None, given), strict=True):
                self.shapes[name] = made.shape
        return missing

    def update_device_memory_size_for_shapes(self) -> int:
        return 0 if record.no_scratch else 512 + sum(int(np.prod(shape)) for shape in self.shapes.values())

    def set_device_memory(self, address: int, size: int) -> None:
        assert address
        assert size >= self.update_device_memory_size_for_shapes()
        self.scratch = (address, size)

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(self.shapes[name])

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert name in self.engine.entries
        self.addresses[name] = address
        return address != 0

    def execute_async_v3(self, stream: int) -> bool:
        if next(record.refusals):
            return False
        assert self.addresses.keys() == self.engine.entries.keys(), "a tensor without address"
        assert self.scratch[0], "no scratch memory"
        with _lock:
            assert not self.busy, "a context in two threads"
            assert self.scratch[0] not in _running, "scratch memory of two executions"
            self.busy = True
            _running[self.scratch[0]] = self.engine.name
            record.most_at_once = max(record.most_at_once, len(_running))
            record.executions.append((self.engine.name, dict(self.shapes)))
        try:
            time.sleep(record.slow)
            binding = self.engine.session.io_binding()
            for name in self.engine.entries:
                put = binding.bind_input if name in self.engine.inputs else binding.bind_output
                put(name, "cpu", 0, self.engine.numpy_type(name), list(self.shapes[name]), self.addresses[name])
            self.engine.session.run_with_iobinding(binding)
        finally:
            with _lock:
                self.busy = False
                del _running[self.scratch[0]]
        return True


class Builder:
    def __init__(self, logger: Logger) -> None:
        begun(logger)

    def create_network(self, flags: int) -> "Network":
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Network()

    def create_builder_config(self) -> "BuilderConfig":
        return BuilderConfig()

    def create_optimization_profile(self) -> "OptimizationProfile":
        return OptimizationProfile()

    def build_serialized_network(self, network: "Network", config: "BuilderConfig") -> bytes | None:
        if config.progress_monitor is not None:
            config.progress_monitor.phase_start("Building", "", record.steps)
            for step in range(record.steps):
                if not config.progress_monitor.step_complete("Building", step):
                    record.stopped += 1
                    return None
                if step == 0:
                    record.first_step()
            config.progress_monitor.phase_finish("Building")
        if config.timing_cache is not None:
            config.timing_cache.kept = b"measured on the test"
        return MAGIC + json.dumps([profile.shapes for profile in config.profiles]).encode() + b"\n" + network.graph


class Network:
    graph = b""

    @property
    def num_inputs(self) -> int:
        return len(onnx.load_from_string(self.graph).graph.input)

    def get_input(self, at: int) -> Any:
        return onnx.load_from_string(self.graph).graph.input[at]


class OnnxParser:
    num_errors = 1

    def __init__(self, network: Network, logger: Logger) -> None:
        self._network = network

    def parse_from_file(self, path: str) -> bool:
        try:
            onnx.checker.check_model(path)
        except Exception:
            return False
        with open(path, "rb") as stream:  # noqa: PTH123
            self._network.graph = stream.read()
        return True

    def get_error(self, at: int) -> Any:
        return SimpleNamespace(desc=lambda: "no such operator")


class OptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, name: str, least: Dims, usual: Dims, most: Dims) -> None:
        assert all(low <= at <= high for low, at, high in zip(least, usual, most, strict=True)), (
            f"{name}: usual is outside"
        )
        self.shapes[name] = [list(least), list(usual), list(most)]


@dataclass
class TimingCache:
    kept: bytes

    def serialize(self) -> bytes:
        return self.kept


class BuilderConfig:
    def __init__(self) -> None:
        self.flags, self.profiles, self.workspace = {BuilderFlag.TF32}, list[OptimizationProfile](), 0
        self.builder_optimization_level, self.profiling_verbosity = 3, None
        self.hardware_compatibility_level = HardwareCompatibilityLevel.NONE
        self.progress_monitor: Any = None
        self.timing_cache: TimingCache | None = None

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.workspace = size

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, kept: bytes) -> TimingCache:
        return TimingCache(kept)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.timing_cache = cache
        return cache.kept != b"of another GPU"
