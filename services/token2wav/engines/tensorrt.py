"""Runs graphs with TensorRT: plans from the engine cache behind the interface of `engines.runtime`.

`tensorrt` is imported late, and only here and in the tool that builds plans; written for TensorRT
10.13 and checked against the types of that release. Each context is created for one set of shapes
and gets its scratch memory from the slot that runs it. So a recorded CUDA graph, which contains
addresses, stays valid for the lifetime of the context.
"""

import contextlib
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cosyserve.engines.gpu_facts import driver_version
from cosyserve.errors import InternalFault, ModelError, SettingsError
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.engine_identity import device_of
from services.token2wav.engines.artifacts import VERSION, CachedEngines, plan_file
from services.token2wav.engines.backend import assemble
from services.token2wav.engines.runtime import Engine, Port, Shape, Shapes
from services.token2wav.engines.shapes import Profile, covering

if TYPE_CHECKING:
    import tensorrt as trt

INSTALL = (
    "pip install tensorrt-cu13==10.13.3.9 (10.13 is what this was written for), "
    "or choose the backend onnxruntime or torch"
)
OLDEST, BELOW = (10, 10), (11,)
"""Supported releases, the same as in `cosyserve doctor`: 11 is refused until it has been tested."""
NO_START = "its own log says why; mostly the driver is too old for its CUDA, which cosyserve doctor --gpu shows"


def on_device(device: torch.device) -> AbstractContextManager[None]:
    """Within this context TensorRT creates its objects on `device`, because it uses the thread's
    current GPU.
    """
    inside: AbstractContextManager[None] = (
        torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    )
    return inside


def tensorrt_library() -> Any:
    """The module. Raises SettingsError that names the package to install."""
    try:
        import tensorrt as trt
    except ModuleNotFoundError as error:
        raise SettingsError(f"backend tensorrt needs the package tensorrt: {INSTALL}") from error
    except (ImportError, OSError) as error:  # shared libraries are missing or need another CUDA
        raise SettingsError(f"the package tensorrt that is installed cannot be loaded ({error}): {INSTALL}") from error
    if not hasattr(trt, "Runtime"):  # an empty namespace package, as type stubs leave
        raise SettingsError(f"the package tensorrt that is installed has no runtime in it: {INSTALL}")
    release = tuple(int(part) for part in trt.__version__.split(".")[:2])
    if not OLDEST <= release < BELOW:
        raise SettingsError(f"TensorRT {trt.__version__} is installed, 10.10 to below 11 can be served: {INSTALL}")
    return trt


def load_tensorrt(model: Path, settings: EngineSettings) -> Backend:
    """The three profiles over the plans of this model and machine. Raises SettingsError without the
    library or a GPU. Raises ModelError for plans that are missing or were built for another
    machine, with the reason and the command that builds them.
    """
    trt = tensorrt_library()
    device = device_of(settings.device)
    if device.type != "cuda":
        raise SettingsError(f"backend tensorrt needs a GPU; device is {settings.device!r}")
    machine = machine_facts(device, trt.__version__)

    def load(component: str, stored: CachedEngines, built: Sequence[Profile]) -> Engine:
        plan = stored.plan(component, machine, built)
        return TensorRTEngine(
            component,
            plan.file(plan_file(component)),
            device,
            built,
            host_code=VERSION in settings.engine_compatibility,
        )

    return assemble(
        model, settings, device, "tensorrt", load, f", TensorRT {trt.__version__}, driver {machine['driver']}"
    )


class TensorRTEngine:
    """One plan. built: the profiles with which it must have been built. host_code: the plan was
    built for several versions of TensorRT and contains code for the CPU; no other plan may.

    Raises ModelError for a plan that this TensorRT cannot read or that has other profiles,
    SettingsError if TensorRT cannot start.
    """

    def __init__(
        self, name: str, path: Path, device: torch.device, built: Sequence[Profile], *, host_code: bool = False
    ) -> None:
        import tensorrt as trt

        self.name, self.recordable = name, True
        self._device, self._built = device, list(built)
        self._logger = trt.Logger(trt.Logger.WARNING)
        with on_device(device):
            try:
                self._runtime = trt.Runtime(self._logger)
            except TypeError as error:  # the bindings raise this if the constructor returns null
                raise SettingsError(f"TensorRT {trt.__version__} cannot begin here: {NO_START}") from error
            self._runtime.engine_host_code_allowed = host_code
            engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise ModelError(f"{path}: TensorRT {trt.__version__} cannot read this plan; remove it and build it again")
        self._engine = engine
        self._making = threading.Lock()
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        for at in range(engine.num_io_tensors):
            port = self._port(engine.get_tensor_name(at))
            (self.inputs if engine.get_tensor_mode(port.name) == trt.TensorIOMode.INPUT else self.outputs).append(port)
        self._check_profiles(path)

    def refusal(self, shapes: Shapes) -> str:
        """See `Engine`."""
        return "" if covering(self._built, shapes) is not None else f"no profile of the plan covers {dict(shapes)}"

    def context(self, shapes: Shapes, stream: int) -> "_TensorRTContext":
        """See `Engine`."""
        import tensorrt as trt

        profile = covering(self._built, shapes)
        if profile is None:
            raise InternalFault(f"engine {self.name}: {self.refusal(shapes)}")
        with self._making:
            context = self._engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise InternalFault(f"engine {self.name}: no execution context; the GPU may be out of memory")
        return _TensorRTContext(
            self.name, context, shapes, profile, stream, self._engine.get_device_memory_size_for_profile_v2(profile)
        )

    def output_shapes(self, shapes: Shapes, stream: int) -> dict[str, Shape]:
        """The output shapes of an execution at these input shapes."""
        context = self.context(shapes, stream)
        return {port.name: context.shape(port.name) for port in self.outputs}

    def _port(self, name: str) -> Port:
        import tensorrt as trt

        types = {
            trt.DataType.FLOAT: torch.float32,
            trt.DataType.HALF: torch.float16,
            trt.DataType.BF16: torch.bfloat16,
            trt.DataType.INT32: torch.int32,
            trt.DataType.INT64: torch.int64,
            trt.DataType.BOOL: torch.bool,
        }
        kind = self._engine.get_tensor_dtype(name)
        if kind not in types:
            raise ModelError(f"engine {self.name}: {name} is {kind}, which no caller gives")
        return Port(
            name,
            types[kind],
            tuple(None if length < 0 else length for length in _lengths(self._engine.get_tensor_shape(name))),
        )

    def _check_profiles(self, path: Path) -> None:
        if self._engine.num_optimization_profiles != len(self._built):
            raise ModelError(
                f"{path}: {self._engine.num_optimization_profiles} profiles, {len(self._built)} are needed"
            )
        for at, profile in enumerate(self._built):
            if profile.most.keys() != {port.name for port in self.inputs}:
                raise ModelError(
                    f"{path}: inputs are {[port.name for port in self.inputs]}, {sorted(profile.most)} are needed"
                )
            for name in profile.most:
                least, _, most = (_lengths(shape) for shape in self._engine.get_tensor_profile_shape(name, at))
                if (least, most) != (profile.least[name], profile.most[name]):
                    raise ModelError(
                        f"{path}: profile {at} takes {name} from {least} to {most}, needed is {profile.least[name]} to "
                        f"{profile.most[name]}"
                    )


class _TensorRTContext:
    """Created, used and dropped by the thread that leases the slot. most_scratch: bytes of scratch
    memory at the profile's largest shapes.
    """

    def __init__(
        self, name: str, context: "trt.IExecutionContext", shapes: Shapes, profile: int, stream: int, most_scratch: int
    ) -> None:
        self._name, self._context = name, context
        # These calls raise RuntimeError where others return False.
        try:
            context.set_optimization_profile_async(profile, stream)
            for input_name, shape in shapes.items():
                self._require(
                    context.set_input_shape(input_name, list(shape)), f"{input_name} was not taken as {list(shape)}"
                )
            unknown = context.infer_shapes()
        except RuntimeError as error:
            raise InternalFault(
                f"engine {name}: profile {profile} or its shapes were not taken ({error}); TensorRT's log has the "
                "details"
            ) from error
        self._require(not unknown, f"shapes of {', '.join(unknown)} do not follow from the inputs'")
        self._shapes = dict(shapes)
        self.scratch_bytes: int = context.update_device_memory_size_for_shapes()
        # The call also returns 0 for an error.
        self._require(
            self.scratch_bytes > 0 or most_scratch == 0,
            "the scratch memory that these shapes need could not be worked out",
        )

    def shape(self, name: str) -> Shape:
        """Shape of an input or output at the context's shapes."""
        return _lengths(self._context.get_tensor_shape(name))

    def bind(self, name: str, shape: Shape, address: int) -> None:
        known = self.shape(name)
        self._require(known == shape, f"{name} is {list(known)} at these inputs, {list(shape)} was expected")
        self._require(self._context.set_tensor_address(name, address), f"the address of {name} was not taken")

    def give_scratch(self, address: int, size: int) -> None:
        self._context.set_device_memory(address, size)

    def enqueue(self, stream: int) -> None:
        self._require(self._context.execute_async_v3(stream), "the execution was not queued")

    def _require(self, done: bool, otherwise: str) -> None:
        if not done:
            raise InternalFault(f"engine {self._name}: {otherwise}; TensorRT's log has the details")


def _lengths(shape: "trt.Dims") -> Shape:
    return tuple(int(shape[at]) for at in range(len(shape)))


def machine_facts(device: torch.device, tensorrt: str) -> dict[str, str]:
    """What a plan depends on in addition to its graph, for its cache key: the GPU and the versions
    of driver and TensorRT.
    """
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "gpu": torch.cuda.get_device_name(device),
        "compute_capability": f"{major}.{minor}",
        "tensorrt": tensorrt,
        "driver": driver_version() or "unknown",
    }
