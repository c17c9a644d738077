"""Kernels in CUDA C++: compiled by NVRTC, the compiler library that comes with torch, kept beside
the compiled kernels of Triton (`kernel_cache.keep_kernels`), and launched through the CUDA driver.

Triton has no words for what one program of a thread-block cluster reads from another's shared
memory, nor for a warp that only fetches. Kernels that need them are written in CUDA C++. Everything
here goes through ctypes, so that this module can be imported, and kernels be compiled, on a machine
without a GPU.

A launch takes the stream as a number and may be recorded in a CUDA graph. The process must have a
current CUDA context, which torch makes with its first operation on a device.
"""

import ctypes
import hashlib
import logging
import os
import site
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.kernel_cache import TRITON, Unsuitable

log = logging.getLogger(__name__)
_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_PLACES = ("nvidia/cu13/lib", "nvidia/cu12/lib", "nvidia/cuda_nvrtc/lib")
"""Where the wheels that torch depends on have the library, below a directory of packages."""
_DIGEST_BYTES = 32
"""Of SHA-256, behind kept machine code."""
_MAXIMUM_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_WIDE_CLUSTERS = 14
"""CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED."""
_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_CLUSTER, _DEPENDENT, _COOPERATIVE = 4, 6, 2
"""CUlaunchAttributeID: cluster dimension, programmatic stream serialization, cooperative."""
Argument = ctypes.c_void_p | ctypes.c_int | ctypes.c_float | ctypes.c_longlong | ctypes.Structure


class CompileError(Unsuitable):
    """A kernel was not compiled; the message has the first lines of the compiler's log."""


@dataclass(frozen=True)
class Compiled:
    """Machine code of a source for one kind of GPU. log: what the compiler said; empty if the code
    was in the cache.
    """

    code: bytes
    log: str = ""


def compile_kernels(source: str, capability: tuple[int, int], options: Sequence[str] = ()) -> Compiled:
    """Compile `source` for a compute capability, or take it from the cache.

    source: CUDA C++ without includes of files; kernels are declared `extern "C" __global__`.
    capability: from (9, 0) on the target has the instructions of that architecture only
    (`sm_90a`). options: of the compiler, such as `-DROWS=64`.

    Raises CompileError where the library is missing or rejects the source. Blocks for seconds where
    the cache does not have it.
    """
    version, nvrtc = _nvrtc()
    name = "sm_" + "".join(map(str, capability)) + ("a" if capability >= (9, 0) else "")
    arguments = [f"--gpu-architecture={name}", "--std=c++17", "--ptxas-options=-v", *options]
    key = hashlib.sha256("\0".join([version, source, *arguments]).encode()).hexdigest()
    kept = Path(os.environ[TRITON]) / f"cuda-{key[:32]}.cubin" if TRITON in os.environ else None
    if kept is not None and (code := _read(kept)) is not None:
        return Compiled(code)
    began = time.monotonic()
    compiled = _compile(nvrtc, source, arguments)
    log.info("start: a CUDA C++ kernel for %s was compiled in %.1f s", name, time.monotonic() - began)
    if kept is not None:
        _keep(compiled.code, kept)
    return compiled


def _read(kept: Path) -> bytes | None:
    """Machine code that `_keep` has written; None where there is none, or it is damaged. The driver
    gets no length, so what it gets has to be whole.
    """
    try:
        written = kept.read_bytes()
    except OSError:
        return None
    code, digest = written[:-_DIGEST_BYTES], written[-_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(code: bytes, kept: Path) -> None:
    """Write machine code and its digest. Without room for it, the next start compiles again."""
    beside = None
    try:
        with tempfile.NamedTemporaryFile(dir=kept.parent, prefix="cuda-", delete=False) as file:
            beside = Path(file.name)
            file.write(code + hashlib.sha256(code).digest())
        beside.replace(kept)
    except OSError as error:
        log.warning("start: a compiled kernel cannot be kept for the next start: %s", error)
        if beside is not None:
            beside.unlink(missing_ok=True)


def _nvrtc() -> tuple[str, ctypes.CDLL]:
    """Version of the compiler library, and the library. A library that torch has loaded already is
    found by its name, any other where the wheels have it.
    """
    directories = [Path(entry) for entry in dict.fromkeys([*sys.path, *site.getsitepackages()])]
    files = [str(file) for each in directories for place in _PLACES for file in (each / place).glob("libnvrtc.so.*")]
    reason = "no file of that name"
    for name in (*_LIBRARIES, *sorted(files)):
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            reason = str(error)
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}", library
    raise CompileError(f"kernels in CUDA C++ need NVRTC, which comes with torch for CUDA ({reason})")


def _compile(nvrtc: ctypes.CDLL, source: str, arguments: Sequence[str]) -> Compiled:
    program = ctypes.c_void_p()
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    if status:
        raise CompileError(f"NVRTC cannot begin (status {status})")
    try:
        texts = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
        status = nvrtc.nvrtcCompileProgram(program, len(arguments), texts)
        said = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode().strip()
        if status:
            lines = "; ".join(said.splitlines()[:4])
            raise CompileError(f"NVRTC does not compile a kernel in CUDA C++ (status {status}): {lines}")
        return Compiled(_bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), said)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(size_of: "ctypes._NamedFuncPointer", read: "ctypes._NamedFuncPointer", program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.raw


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: 4 bytes of identifier, 4 of padding, 64 of value."""

    _fields_ = (("identifier", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class DriverError(RuntimeError):
    """The CUDA driver refused an operation."""


class Driver:
    """The functions of the CUDA driver that are needed here. Raises Unsuitable where it is not
    installed.
    """

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unsuitable(f"kernels in CUDA C++ need NVIDIA's driver ({error})") from error

    def __call__(self, function: str, *arguments: object) -> None:
        """Raises DriverError."""
        if status := getattr(self.library, function)(*arguments):
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{function}: {(text.value or b'').decode() or status}")


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel is launched.

    grid, block, cluster: programs in three directions, threads, programs of a thread-block cluster
    (they must divide the grid). shared: bytes of dynamic shared memory. dependent: programmatic
    dependent launch, that is, the kernel is scheduled while the one before it still runs and waits
    for it by `griddepcontrol.wait`. cooperative: all programs are on the device at once, or the
    launch fails; kernels whose programs wait for each other need it.
    """

    grid: tuple[int, int, int]
    block: int
    shared: int = 0
    cluster: int = 1
    dependent: bool = False
    cooperative: bool = False


class Module:
    """Machine code in the current CUDA context; its kernels live as long as it does."""

    def __init__(self, compiled: Compiled, driver: Driver | None = None) -> None:
        self._driver = driver or Driver()
        self._handle = ctypes.c_void_p()
        self._driver("cuModuleLoadData", ctypes.byref(self._handle), compiled.code)

    def kernel(self, name: str) -> "Kernel":
        """The kernel declared under this name. Raises DriverError where there is none."""
        function = ctypes.c_void_p()
        self._driver("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
        return Kernel(self, self._driver, function)


class Kernel:
    """A kernel that can be launched."""

    def __init__(self, module: Module, driver: Driver, function: ctypes.c_void_p) -> None:
        self._module, self._driver, self._function = module, driver, function
        self._shared = 48 << 10
        self._driver("cuFuncSetAttribute", function, _WIDE_CLUSTERS, 1)

    def at_once(self, shape: LaunchShape) -> int:
        """How many clusters of this shape (programs, where a cluster is one) the whole device runs
        at the same time if it is idle. Raises DriverError.
        """
        self._allow(shape.shared)
        count = ctypes.c_int()
        if shape.cluster == 1:  # the question about clusters is answered with 0 where there are none
            device, multiprocessors = ctypes.c_int(), ctypes.c_int()
            self._driver("cuCtxGetDevice", ctypes.byref(device))
            self._driver("cuDeviceGetAttribute", ctypes.byref(multiprocessors), _MULTIPROCESSORS, device)
            each = (shape.block, ctypes.c_size_t(shape.shared))
            self._driver("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), self._function, *each)
            return count.value * multiprocessors.value
        configuration, _ = self._configuration(shape, 0)
        self._driver("cuOccupancyMaxActiveClusters", ctypes.byref(count), self._function, ctypes.byref(configuration))
        return count.value

    def __call__(self, shape: LaunchShape, stream: int, *arguments: Argument) -> None:
        """Launch on a stream (`torch.cuda.current_stream().cuda_stream`). The arguments are those
        of the declaration, by ctypes. Raises DriverError.
        """
        self._allow(shape.shared)
        configuration, _attributes = self._configuration(shape, stream)
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments)
        )
        self._driver("cuLaunchKernelEx", ctypes.byref(configuration), self._function, pointers, None)

    def _allow(self, shared: int) -> None:
        if shared > self._shared:
            self._driver("cuFuncSetAttribute", self._function, _MAXIMUM_SHARED, shared)
            self._shared = shared

    def _configuration(self, shape: LaunchShape, stream: int) -> tuple[_Configuration, ctypes.Array[_Attribute]]:
        """With the attributes that it points to: the caller keeps them until it has launched."""
        chosen: list[tuple[int, tuple[int, ...]]] = []
        if shape.cluster > 1:
            chosen.append((_CLUSTER, (shape.cluster, 1, 1)))
        if shape.dependent:
            chosen.append((_DEPENDENT, (1,)))
        if shape.cooperative:
            chosen.append((_COOPERATIVE, (1,)))
        attributes = (_Attribute * max(1, len(chosen)))()
        for attribute, (identifier, values) in zip(attributes, chosen, strict=False):
            attribute.identifier = identifier
            for place, value in enumerate(values):
                attribute.value[place] = value
        configuration = _Configuration(
            grid=(ctypes.c_uint * 3)(*shape.grid),
            block=(ctypes.c_uint * 3)(shape.block, 1, 1),
            shared=shape.shared,
            stream=stream or None,
            attributes=attributes,
            count=len(chosen),
        )
        return configuration, attributes
