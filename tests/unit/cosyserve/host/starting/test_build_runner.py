"""A step that fails is named, and one that is stopped leaves nobody behind."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.host.starting import engine_builds as precompiling
from cosyserve.host.starting.engine_builds import precompile


async def test_a_build_that_fails_is_named(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ModelError, match=r"cosyserve model inspect .*nowhere ended with status"):
        await precompile([["inspect", str(tmp_path / "nowhere")]], told.append)
    assert told == [f"cosyserve model inspect {tmp_path / 'nowhere'}"]


async def test_who_stops_a_build_stops_what_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step starts programs of its own, and one that does not listen."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    deaf = "import signal, subprocess; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    step = f"{deaf}; subprocess.run(['sh', '-c', 'exec > {pipe}; echo up; exec sleep 600'])"
    (tmp_path / "python").write_text(f"#!{sys.executable}\n{step}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(precompiling.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(precompiling, "_STOP_SECONDS", 0.1)
    building = asyncio.create_task(precompile([["build"]], lambda line: None))
    with await asyncio.to_thread(pipe.open) as told:
        assert await asyncio.to_thread(told.readline) == "up\n"
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await building
        # Whoever is left would hold the other end.
        assert await asyncio.to_thread(told.read) == ""


async def test_what_a_step_that_listens_has_started_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step ends at once; its program has been told to go on."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    program = f"trap '' INT; exec > {pipe}; echo up; while :; do sleep 600; done"
    step = f"import subprocess; subprocess.Popen(['sh', '-c', {program!r}]).wait()"
    (tmp_path / "python").write_text(f"#!{sys.executable}\n{step}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(precompiling.sys, "executable", str(tmp_path / "python"))
    building = asyncio.create_task(precompile([["build"]], lambda line: None))
    with await asyncio.to_thread(pipe.open) as told:
        assert await asyncio.to_thread(told.readline) == "up\n"
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await building
        assert await asyncio.to_thread(told.read) == ""
