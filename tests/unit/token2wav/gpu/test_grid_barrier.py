"""Of the processes that share a GPU through an MPS daemon, one may launch kernels with a grid
barrier.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.token2wav.gpu.device import grid_barrier
from services.token2wav.gpu.device.grid_barrier import claim_grid_barrier

GPU = "GPU-1234"
OTHER = """
import sys
from pathlib import Path
from services.token2wav.gpu.device import grid_barrier

grid_barrier._SHARED = Path(sys.argv[2])
print(grid_barrier.claim_grid_barrier("GPU-1234", {"CUDA_MPS_PIPE_DIRECTORY": sys.argv[1]}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which a daemon listens."""
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    monkeypatch.setattr(grid_barrier, "_SHARED", tmp_path)
    monkeypatch.setattr(grid_barrier, "_USUAL_PIPES", tmp_path / "usual")
    monkeypatch.setattr(grid_barrier, "_locks", {})
    return tmp_path / "pipes"


class Another:
    """Another process that claims the barrier and runs until it is ended."""

    def __init__(self, pipes: Path) -> None:
        asking = (sys.executable, "-c", OTHER, str(pipes), str(pipes.parent))
        self._process = subprocess.Popen(asking, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.may = self._process.stdout.readline().strip() == "True"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_one_process_has_them_until_it_ends(pipes: Path, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    first = Another(pipes)
    try:
        assert first.may
        assert not claim_grid_barrier(GPU, environment)
        assert "small batches are slower here" in caplog.text
        assert claim_grid_barrier("GPU-5678", environment), "another GPU of the same daemon"
    finally:
        first.end()
    assert claim_grid_barrier(GPU, environment)
    assert claim_grid_barrier(GPU, environment), "what this process has it may use again"
    second = Another(pipes)
    second.end()
    assert not second.may


@pytest.mark.parametrize(("multiprocessors", "units"), [(132, 4), (104, 4), (103, 1), (56, 1), (55, 0)])
def test_all_programs_that_meet_have_a_multiprocessor_of_their_own(multiprocessors: int, units: int) -> None:
    pytest.importorskip("triton")
    from services.token2wav.gpu.device.launcher import Launcher, Tile
    from services.token2wav.gpu.paged_flow.flow import BUCKETS, widest_barrier_step

    assert widest_barrier_step(BUCKETS, Launcher(), 256, multiprocessors) == units
    always = Launcher(tiles={"feed forward": ((400, Tile(16, 0, 128)),)})
    assert widest_barrier_step(BUCKETS, always, 256, multiprocessors) == min(units, 2)
    # Eight units would fit, but four do not, so neither may use a barrier.
    uneven = Launcher(tiles={"feed forward": ((400, Tile(16, 0, 128)), (800, Tile(64, 0, 128)))})
    assert widest_barrier_step(BUCKETS, uneven, 256, multiprocessors) == min(units, 2)
    finer = Launcher(tiles={"feed forward": ((400, Tile(16, 0, 64)),)})
    assert widest_barrier_step(BUCKETS, finer, 256, multiprocessors) == (1 if multiprocessors == 132 else 0)


def test_processes_that_take_turns_need_no_lock(pipes: Path) -> None:
    assert claim_grid_barrier(GPU, {})
    assert claim_grid_barrier(GPU, {"CUDA_MPS_PIPE_DIRECTORY": str(pipes / "nowhere")})
    assert not grid_barrier._locks


@pytest.fixture
def allowed_no_files(pipes: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Claims the barrier as another process that cannot open files in the daemon's directory."""
    opened = os.open

    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        if path.parent == pipes:
            raise PermissionError(path)
        return opened(path, flags, mode)

    def may() -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refused)
            patched.setattr(grid_barrier, "_locks", {})
            return claim_grid_barrier(GPU, {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)})

    return may


def test_where_the_daemon_allows_no_files_the_lock_is_where_its_clients_meet(
    pipes: Path, allowed_no_files: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert allowed_no_files()
    (lock,) = pipes.parent.glob("cosyserve-meeting-*")
    assert lock.stat().st_mode & 0o22 == 0
    assert not allowed_no_files(), "another process has it already"
    lock.unlink()
    (pipes / lock.name).touch()
    assert not allowed_no_files(), "a file that cannot be opened is one that another process may have locked"
    (pipes / lock.name).unlink()
    monkeypatch.setattr(grid_barrier, "_SHARED", pipes)
    assert not allowed_no_files(), "no file can be created anywhere"


def test_who_is_allowed_more_files_meets_who_is_allowed_fewer(
    pipes: Path, allowed_no_files: Callable[[], bool]
) -> None:
    assert allowed_no_files()
    second = Another(pipes)
    second.end()
    assert not second.may
