"""A step that fails is named, and one that is stopped leaves no process behind."""

import asyncio
import os
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.host.starting import engine_builds as precompiling
from cosyserve.host.starting.engine_builds import precompile
from tests.unit.cosyserve.host.fake_gpu import put_program


async def test_a_build_that_fails_is_named(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ModelError, match=r"cosyserve model inspect .*nowhere ended with status"):
        await precompile([["inspect", str(tmp_path / "nowhere")]], told.append)
    assert told == [f"cosyserve model inspect {tmp_path / 'nowhere'}"]


@pytest.mark.parametrize(
    ("step", "stop_seconds"),
    [
        # A program that is told to go on, of a step that ends at once.
        ("subprocess.Popen(['sh', '-c', 'trap \"\" INT; ' + program]).wait()", 10.0),
        # A step that does not listen.
        ("signal.signal(signal.SIGINT, signal.SIG_IGN); subprocess.run(['sh', '-c', program])", 0.1),
    ],
    ids=["a step that listens", "a step that does not"],
)
async def test_who_stops_a_build_stops_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, stop_seconds: float
) -> None:
    """A step starts programs of its own."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    program = f"exec > {pipe}; echo up; while :; do sleep 600; done"
    put_program(tmp_path, "python", f"import signal, subprocess\nprogram = {program!r}\n{step}\n")
    monkeypatch.setattr(precompiling.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(precompiling, "_STOP_SECONDS", stop_seconds)
    building = asyncio.create_task(precompile([["build"]], lambda line: None))
    with await asyncio.to_thread(pipe.open) as output:
        assert await asyncio.to_thread(output.readline) == "up\n"
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await building
        # A process that is left would hold the other end.
        assert await asyncio.to_thread(output.read) == ""
