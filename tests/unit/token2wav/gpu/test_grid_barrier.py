"""Of the processes that an MPS daemon brings together on one GPU, one has programs that wait for
each other.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.token2wav.gpu.device import grid_barrier as meeting
from services.token2wav.gpu.device.grid_barrier import claim_grid_barrier

GPU = "GPU-1234"
OTHER = """
import sys
from pathlib import Path
from services.token2wav.gpu.device import grid_barrier as meeting

meeting._SHARED = Path(sys.argv[2])
print(meeting.claim_grid_barrier("GPU-1234", {"CUDA_MPS_PIPE_DIRECTORY": sys.argv[1]}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a daemon listens."""
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    monkeypatch.setattr(meeting, "_SHARED", tmp_path)
    monkeypatch.setattr(meeting, "_USUAL_PIPES", tmp_path / "usual")
    monkeypatch.setattr(meeting, "_held", {})
    return tmp_path / "pipes"


class Another:
    """A process that asks too, and lives until it is ended."""

    def __init__(self, pipes: Path) -> None:
        asking = (sys.executable, "-c", OTHER, str(pipes), str(pipes.parent))
        self._process = subprocess.Popen(asking, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.may = self._process.stdout.readline().strip() == "True"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_one_process_has_them_until_it_ends(pipes: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    first = Another(pipes)
    try:
        assert first.may
        assert not claim_grid_barrier(GPU, told)
        assert "small batches are slower here" in caplog.text
        assert claim_grid_barrier("GPU-5678", told), "another GPU of the same daemon"
    finally:
        first.end()
    assert claim_grid_barrier(GPU, told)
    assert claim_grid_barrier(GPU, told), "what this process has it may use again"
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
    # Tiles of eight units that would fit do not let those of four meet.
    uneven = Launcher(tiles={"feed forward": ((400, Tile(16, 0, 128)), (800, Tile(64, 0, 128)))})
    assert widest_barrier_step(BUCKETS, uneven, 256, multiprocessors) == min(units, 2)
    finer = Launcher(tiles={"feed forward": ((400, Tile(16, 0, 64)),)})
    assert widest_barrier_step(BUCKETS, finer, 256, multiprocessors) == (1 if multiprocessors == 132 else 0)


def test_processes_that_take_turns_need_no_lock(pipes: Path) -> None:
    assert claim_grid_barrier(GPU, {})
    assert claim_grid_barrier(GPU, {"CUDA_MPS_PIPE_DIRECTORY": str(pipes / "nowhere")})
    assert not meeting._held


@pytest.fixture
def allowed_no_files(pipes: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Asks as another process, which can open nothing where the daemon listens."""
    opened = os.open

    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        if path.parent == pipes:
            raise PermissionError(path)
        return opened(path, flags, mode)

    def may() -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refused)
            patched.setattr(meeting, "_held", {})
            return claim_grid_barrier(GPU, {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)})

    return may


def test_where_the_daemon_allows_no_files_the_lock_is_where_its_clients_meet(
    pipes: Path, allowed_no_files: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert allowed_no_files()
    (lock,) = pipes.parent.glob("cosyserve-meeting-*")
    assert lock.stat().st_mode & 0o22 == 0
    assert not allowed_no_files(), "somebody has it already"
    lock.unlink()
    (pipes / lock.name).touch()
    assert not allowed_no_files(), "a file that cannot be opened is one that somebody may have"
    (pipes / lock.name).unlink()
    monkeypatch.setattr(meeting, "_SHARED", pipes)
    assert not allowed_no_files(), "no file can be made anywhere"


def test_who_is_allowed_more_files_meets_who_is_allowed_fewer(
    pipes: Path, allowed_no_files: Callable[[], bool]
) -> None:
    assert allowed_no_files()
    second = Another(pipes)
    second.end()
    assert not second.may
