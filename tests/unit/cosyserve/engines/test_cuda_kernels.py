"""Kernels in CUDA C++: kept by source, target and options; what the compiler rejects is told, and
launches carry the attributes that were asked for.
"""

import ctypes
from pathlib import Path

import pytest

from cosyserve.engines import cuda_kernels
from cosyserve.engines.cuda_kernels import (
    Compiled,
    CompileError,
    Driver,
    DriverError,
    Kernel,
    LaunchShape,
    Module,
    compile_kernels,
)
from cosyserve.engines.kernel_cache import TRITON


class Compiler:
    """As NVRTC: compiles everything but sources that contain `bad`."""

    def __init__(self) -> None:
        self.sources: list[bytes] = []
        self.said, self.options = b"", list[bytes]()

    def nvrtcVersion(self, major: object, minor: object) -> int:
        return 0

    def nvrtcCreateProgram(self, program: object, source: bytes, *_: object) -> int:
        self.sources.append(source)
        return 0

    def nvrtcCompileProgram(self, program: object, count: int, options: "ctypes.Array[ctypes.c_char_p]") -> int:
        self.options = [options[place] or b"" for place in range(count)]
        bad = b"bad" in self.sources[-1]
        self.said = b"kernels.cu(1): error: bad\n\0" if bad else b"Used 8 registers\0"
        return 6 if bad else 0

    def nvrtcGetProgramLogSize(self, program: object, size: "ctypes._CArgObject") -> None:
        size._obj.value = len(self.said)  # type: ignore[attr-defined]

    def nvrtcGetProgramLog(self, program: object, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        buffer.value = self.said

    def nvrtcGetCUBINSize(self, program: object, size: "ctypes._CArgObject") -> None:
        size._obj.value = 4  # type: ignore[attr-defined]

    def nvrtcGetCUBIN(self, program: object, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        buffer.raw = b"code"

    def nvrtcDestroyProgram(self, program: object) -> None:
        self.options = [*self.options, b"destroyed"]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    fake = Compiler()
    monkeypatch.setattr(cuda_kernels, "_nvrtc", lambda: ("13.0", fake))
    monkeypatch.setenv(TRITON, str(tmp_path))
    return fake


def test_code_is_kept_by_source_target_and_options(compiler: Compiler, tmp_path: Path) -> None:
    assert compile_kernels("kernel", (9, 0)) == Compiled(b"code", "Used 8 registers")
    assert compiler.options[:2] == [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    assert compiler.options[-1] == b"destroyed"
    assert compile_kernels("kernel", (9, 0)) == Compiled(b"code")
    assert len(compiler.sources) == 1
    compile_kernels("another", (9, 0))
    compile_kernels("kernel", (9, 0), ["-DROWS=64"])
    compile_kernels("kernel", (8, 0))
    assert compiler.options[0] == b"--gpu-architecture=sm_80"
    assert len(compiler.sources) == 4
    assert len(list(tmp_path.glob("cuda-*.cubin"))) == 4
    assert len(list(tmp_path.iterdir())) == 4


def test_damaged_code_is_compiled_again(compiler: Compiler, tmp_path: Path) -> None:
    compile_kernels("kernel", (9, 0))
    (kept,) = tmp_path.glob("cuda-*.cubin")
    whole = kept.read_bytes()
    for damaged in (whole[:-1], whole[:3], b"", b"x" + whole[1:]):
        kept.write_bytes(damaged)
        assert compile_kernels("kernel", (9, 0)).code == b"code"
        assert kept.read_bytes() == whole
    assert len(compiler.sources) == 5


def test_code_that_cannot_be_kept_is_used(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TRITON, str(tmp_path / "gone"))
    assert compile_kernels("kernel", (9, 0)).code == b"code"
    assert "cannot be kept" in caplog.text

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv(TRITON, str(tmp_path))
    monkeypatch.setattr(Path, "replace", full)
    assert compile_kernels("kernel", (9, 0)).code == b"code"
    assert not list(tmp_path.iterdir())


def test_what_the_compiler_rejects_is_told_and_not_kept(compiler: Compiler, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompileError, match=r"kernels\.cu\(1\): error: bad"):
            compile_kernels("bad", (9, 0))
    assert len(compiler.sources) == 2
    assert not list(tmp_path.iterdir())
    assert compiler.options[-1] == b"destroyed"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_kernels, "_LIBRARIES", ("libno-such-compiler.so",))
    monkeypatch.setattr(cuda_kernels, "_PLACES", ("nowhere",))
    with pytest.raises(CompileError, match=r"NVRTC, which comes with torch .*libno-such-compiler"):
        compile_kernels("kernel", (9, 0))


class Library:
    """As the driver: writes down what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.attributes: dict[int, list[int]] = {}
        self.arguments: list[int] = []
        self.status = 0

    def __getattr__(self, name: str) -> object:
        def called(*arguments: object) -> int:
            self.calls.append(name)
            return self.status

        return called

    def cuLaunchKernelEx(
        self, configuration: "ctypes._CArgObject", function: object, pointers: "ctypes.Array[ctypes.c_void_p]", _: None
    ) -> int:
        given = configuration._obj  # type: ignore[attr-defined]
        self.calls.append(f"{tuple(given.grid)} {tuple(given.block)} {given.shared} {given.stream}")
        used = [given.attributes[place] for place in range(given.count)]
        self.attributes = {each.identifier: list(each.value[:3]) for each in used}
        self.arguments = [
            ctypes.cast(pointer or 0, ctypes.POINTER(ctypes.c_int)).contents.value for pointer in pointers
        ]
        return self.status

    def cuDeviceGetAttribute(self, value: "ctypes._CArgObject", attribute: int, device: object) -> int:
        value._obj.value = {16: 132}[attribute]  # type: ignore[attr-defined]
        return self.status

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, count: "ctypes._CArgObject", function: object, threads: int, shared: ctypes.c_size_t
    ) -> int:
        count._obj.value = 2 if threads <= 256 and shared.value <= 100_000 else 0  # type: ignore[attr-defined]
        return self.status

    def cuOccupancyMaxActiveClusters(
        self, count: "ctypes._CArgObject", function: object, configuration: "ctypes._CArgObject"
    ) -> int:
        attribute = configuration._obj.attributes[0]  # type: ignore[attr-defined]
        count._obj.value = 132 // attribute.value[0]  # type: ignore[attr-defined]
        return self.status


def kernel() -> tuple[Kernel, Library]:
    """A kernel of the driver above."""
    driver = Driver.__new__(Driver)
    driver.library = library = Library()  # type: ignore[assignment]
    return Module(Compiled(b"code"), driver).kernel("step"), library


def test_a_launch_has_its_shape_attributes_and_arguments() -> None:
    step, library = kernel()
    shape = LaunchShape((16, 2, 1), 256, shared=100_000, cluster=8, dependent=True, cooperative=True)
    step(shape, 7, ctypes.c_int(3), ctypes.c_int(5))
    assert library.calls[-1] == "(16, 2, 1) (256, 1, 1) 100000 7"
    assert library.calls.count("cuFuncSetAttribute") == 2
    assert {name: values[0] for name, values in library.attributes.items()} == {4: 8, 6: 1, 2: 1}
    assert library.attributes[4] == [8, 1, 1]
    assert library.arguments == [3, 5]
    step(LaunchShape((4, 1, 1), 128), 0)
    assert library.calls[-1] == "(4, 1, 1) (128, 1, 1) 0 None"
    assert library.attributes == {}
    assert library.calls.count("cuFuncSetAttribute") == 2


def test_what_the_driver_refuses_is_an_error() -> None:
    step, library = kernel()
    library.status = 719
    with pytest.raises(DriverError, match="cuLaunchKernelEx: 719"):
        step(LaunchShape((1, 1, 1), 32), 0)


def test_how_many_run_at_once_is_asked_for_programs_and_for_clusters() -> None:
    step, _ = kernel()
    assert step.at_once(LaunchShape((132, 1, 1), 256, shared=100_000)) == 264
    assert step.at_once(LaunchShape((132, 1, 1), 512, shared=100_000)) == 0
    assert step.at_once(LaunchShape((16, 1, 1), 256, shared=100_000, cluster=16)) == 8
