"""How engines on one GPU share it: which are counted, which variables they get, and a daemon that
starts, refuses, hangs, dies or is there.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cosyserve.errors import SettingsError
from cosyserve.host.supervision import gpu_sharing, mps_keeper
from cosyserve.host.supervision.gpu_sharing import shared_gpu, wanted_way
from cosyserve.host.supervision.layout import ProcessSpec
from tests.unit.cosyserve.host.fake_gpu import MPS_CONTROL, put_program

MakePlaces = Callable[..., list[ProcessSpec]]
IN_TURNS = "llm.0, token2wav.0 share a GPU in turns: "
NEITHER = (None, None)


@pytest.fixture
def make_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePlaces:
    """Makes the places of a stack that finds the fake program."""
    (tmp_path / "bin").mkdir()
    put_program(tmp_path / "bin", "nvidia-cuda-mps-control", MPS_CONTROL)
    monkeypatch.setattr(gpu_sharing, "_DEFAULT_PIPES", tmp_path / "usual")
    # The keeper is a child: it must find the program's behaviour too, and leave its directory where
    # the test can look.
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def places(way: str = "starts", devices: tuple[str, str] = ("cuda", "cuda"), **more: str) -> list[ProcessSpec]:
        everyone = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FAKE_MPS": way,
            "FAKE_MPS_CALLS": str(tmp_path / "calls"),
            "CUDA_VISIBLE_DEVICES": "0",
            **more,
        }
        stages = (("frontend", ""), ("llm", devices[0]), ("token2wav", devices[1]), ("orchestrator", ""))
        return [
            ProcessSpec(
                service,
                0,
                "127.0.0.1:1",
                everyone | ({f"COSYSERVE_{service.upper()}_DEVICE": device} if device else {}),
            )
            for service, device in stages
        ]

    return places


@pytest.fixture
def lines() -> list[str]:
    """What is reported."""
    return []


def _calls(directory: Path) -> list[list[str]]:
    return (
        [line.split("|") for line in (directory / "calls").read_text().splitlines()]
        if (directory / "calls").exists()
        else []
    )


def _daemon(pipes: str) -> psutil.Process:
    return psutil.Process(int((Path(pipes) / "nvidia-cuda-mps-control.pid").read_text()))


def _gone(process: psutil.Process) -> bool:
    return not psutil.wait_procs([process], timeout=20)[1] or process.status() == psutil.STATUS_ZOMBIE


def _left(directory: Path) -> list[Path]:
    return list(directory.glob("cosyserve-mps-*"))


async def test_engines_on_one_gpu_get_a_daemon_of_their_own(
    make_places: MakePlaces, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_API_KEY", "csk-of-the-shell")
    async with shared_gpu(make_places(), "auto", lines.append) as places:
        pipes = places[1].environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert {
            place.service: (place.environ.get("CUDA_MPS_PIPE_DIRECTORY"), place.environ.get("CUDA_MPS_CLIENT_PRIORITY"))
            for place in places
        } == {"llm": (pipes, "0"), "token2wav": (pipes, "1"), "frontend": NEITHER, "orchestrator": NEITHER}
        daemon = _daemon(pipes)
        assert "COSYSERVE_API_KEY" not in daemon.environ()
        assert Path(pipes).parent.stat().st_mode & 0o77 == 0
    assert lines == ["llm.0, token2wav.0 run on one GPU at the same time, through an MPS daemon of their own"]
    assert _gone(daemon)
    assert not Path(pipes).parent.exists()
    # The daemon sees all devices, so that the engines' own numbers stay right.
    assert _calls(tmp_path) == [["-d", "", pipes], ["quit -t 3", "", pipes]]


async def test_priorities_of_the_environment_stay(make_places: MakePlaces) -> None:
    async with shared_gpu(make_places(CUDA_MPS_CLIENT_PRIORITY="0"), "auto", lambda line: None) as places:
        assert {place.environ["CUDA_MPS_CLIENT_PRIORITY"] for place in places} == {"0"}


@pytest.mark.parametrize("way", ["auto", "off"])
async def test_a_decode_step_of_one_launch_shares_no_gpu(make_places: MakePlaces, lines: list[str], way: str) -> None:
    asked = {"COSYSERVE_LLM_GPU_DECODE": "one_launch", "CUDA_VISIBLE_DEVICES": "0,1"}
    with pytest.raises(SettingsError, match=r"one_launch needs a GPU of its own, and llm\.0, token2wav\.0 share one"):
        async with shared_gpu(make_places(**asked), way, lines.append):
            pass
    apart = make_places(devices=("cuda:0", "cuda:1"), **asked)
    async with shared_gpu(apart, way, lines.append) as places:
        assert places is apart


@pytest.mark.parametrize(
    ("devices", "more"),
    [
        (("cuda", "cpu"), {}),
        (("cpu", "cpu"), {}),
        (("cuda:0", "cuda:1"), {"CUDA_VISIBLE_DEVICES": "0,1"}),
        (("cuda:0", "cuda:1"), {}),
        (("cuda", "cuda"), {"CUDA_VISIBLE_DEVICES": ""}),
        (("cuda", "cuda"), {"CUDA_VISIBLE_DEVICES": "-1,0"}),
        (("cuda", "cuda"), {"COSYSERVE_LLM_BACKEND": "fake", "COSYSERVE_TOKEN2WAV_BACKEND": "torch"}),
        (("auto", "auto"), {}),
        (("", ""), {}),
    ],
)
async def test_engines_that_do_not_share(
    make_places: MakePlaces,
    lines: list[str],
    devices: tuple[str, str],
    more: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on a machine without a GPU, which auto does not use."""
    monkeypatch.setattr(gpu_sharing, "has_nvidia_device", lambda: False)
    before = make_places(devices=devices, **more)
    async with shared_gpu(before, "auto", lines.append) as places:
        assert places is before
    assert (lines, _calls(tmp_path)) == ([], [])


async def test_auto_shares_the_gpu_that_is_there(
    make_places: MakePlaces, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_sharing, "has_nvidia_device", lambda: True)
    async with shared_gpu(make_places(devices=("auto", "")), "auto", lines.append) as places:
        assert "CUDA_MPS_PIPE_DIRECTORY" in places[1].environ
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("devices", "visible"),
    [
        (("cuda", "cuda"), ("0", "0,1")),
        (("cuda", "cuda:1"), ("1", "0, 1")),
        (("cuda:1", "cuda"), ("GPU-a,GPU-b", "GPU-b")),
    ],
)
async def test_one_gpu_by_several_names(
    make_places: MakePlaces, lines: list[str], devices: tuple[str, str], visible: tuple[str, str]
) -> None:
    places = make_places("refuses", devices=devices)
    places[1:3] = [
        replace(place, environ={**place.environ, "CUDA_VISIBLE_DEVICES": seen})
        for place, seen in zip(places[1:3], visible, strict=True)
    ]
    async with shared_gpu(places, "auto", lines.append):
        assert lines[0].startswith("warning: llm.0, token2wav.0 share a GPU in turns")


async def test_two_decoders_on_one_gpu_get_no_daemon_and_use_one_that_is_there(
    make_places: MakePlaces, lines: list[str], tmp_path: Path
) -> None:
    def two(**more: str) -> list[ProcessSpec]:
        places = make_places(**more)
        return [*places, replace(places[2], replica=1)]

    before = two()
    async with shared_gpu(before, "auto", lines.append) as places:
        assert places == before
    assert not _calls(tmp_path)
    assert lines == [
        "warning: llm.0, token2wav.0, token2wav.1 share a GPU in turns: more than one of them is token2wav; give each "
        "a GPU of its own"
    ]
    async with shared_gpu(make_places(), "auto", lambda line: None) as there:
        (tmp_path / "usual").symlink_to(there[1].environ["CUDA_MPS_PIPE_DIRECTORY"])
        async with shared_gpu(two(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path / "usual")), "auto", lines.append):
            assert lines[1].endswith("run on one GPU at the same time, through the MPS daemon that is there")


@pytest.mark.parametrize(
    ("behaviour", "more", "way", "line"),
    [
        ("starts", {}, "off", f"{IN_TURNS}COSYSERVE_GPU_SHARING=off"),
        (
            "refuses",
            {},
            "auto",
            f"warning: {IN_TURNS}.* -d ended with status 1: Cannot create the control pipe: permission denied",
        ),
        ("starts", {"PATH": "/nowhere"}, "auto", f"warning: {IN_TURNS}nvidia-cuda-mps-control is not on this machine"),
        (
            "starts",
            {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"},
            "auto",
            f"warning: {IN_TURNS}CUDA_MPS_PIPE_DIRECTORY is set, but no MPS daemon answers there",
        ),
    ],
    ids=["off", "a daemon that refuses", "without the program", "pipes without a daemon"],
)
async def test_the_gpu_is_used_in_turns_and_the_reason_is_one_line(
    make_places: MakePlaces,
    lines: list[str],
    tmp_path: Path,
    behaviour: str,
    more: dict[str, str],
    way: str,
    line: str,
) -> None:
    before = make_places(behaviour, **more)
    async with shared_gpu(before, way, lines.append) as places:
        assert places is before
    (reported,) = lines
    assert re.fullmatch(line, reported)
    assert not _left(tmp_path)
    assert way == "auto" or not _calls(tmp_path)


def test_a_daemon_that_hangs_is_given_up(
    make_places: MakePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mps_keeper, "START_SECONDS", 0.5)
    for name, value in make_places("hangs")[0].environ.items():
        monkeypatch.setenv(name, value)
    assert mps_keeper.main(str(tmp_path / "bin" / "nvidia-cuda-mps-control")) == 1
    assert capsys.readouterr().out.strip().endswith('nvidia-cuda-mps-control -d did not come back within 0.5 s"}')
    assert [call[0] for call in _calls(tmp_path)] == ["-d", "quit -t 3"]


@pytest.mark.parametrize("way", ["stubborn", "deaf"])
def test_a_daemon_that_does_not_listen_is_killed(
    make_places: MakePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(mps_keeper, "QUIT_SECONDS", 0)
    monkeypatch.setattr(mps_keeper, "_MARGIN_SECONDS", 0.5)
    for name, value in make_places(way)[0].environ.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run").mkdir()
    daemon = mps_keeper._Daemon(str(tmp_path / "bin" / "nvidia-cuda-mps-control"), tmp_path / "run")
    process = _daemon(str(daemon.pipes))
    daemon.end()
    assert _gone(process)


async def test_the_end_of_a_daemon_is_reported(make_places: MakePlaces, lines: list[str], tmp_path: Path) -> None:
    dead = asyncio.Event()

    def report(line: str) -> None:
        lines.append(line)
        if "ended" in line:
            dead.set()

    async with shared_gpu(make_places(), "auto", report) as places:
        _daemon(places[1].environ["CUDA_MPS_PIPE_DIRECTORY"]).kill()
        await asyncio.wait_for(dead.wait(), 20)
    assert lines[1:] == [
        "warning: the MPS daemon ended; engines that are started from now on have the GPU in turns with the others"
    ]
    assert not _left(tmp_path)


async def test_a_daemon_that_is_there_is_used_and_left_alone(
    make_places: MakePlaces, lines: list[str], tmp_path: Path
) -> None:
    async with shared_gpu(make_places(), "auto", lambda line: None) as there:
        pipes = there[1].environ["CUDA_MPS_PIPE_DIRECTORY"]
        async with shared_gpu(make_places(CUDA_MPS_PIPE_DIRECTORY=pipes), "auto", lines.append) as places:
            assert places[2].environ["CUDA_MPS_PIPE_DIRECTORY"] == pipes
            assert places[2].environ["CUDA_MPS_CLIENT_PRIORITY"] == "1"
        assert _daemon(pipes).is_running()
    assert lines == ["llm.0, token2wav.0 run on one GPU at the same time, through the MPS daemon that is there"]
    assert [call[0] for call in _calls(tmp_path)] == ["-d", "get_server_list", "quit -t 3"]


_HOLDER = """
import asyncio, os
from cosyserve.host.supervision.gpu_sharing import shared_gpu
from cosyserve.host.supervision.layout import ProcessSpec

async def hold():
    places = [
        ProcessSpec(name, 0, "", {**os.environ, f"COSYSERVE_{name.upper()}_DEVICE": "cuda"})
        for name in ("llm", "token2wav")
    ]
    async with shared_gpu(places, "auto", lambda line: None) as make_places:
        print(make_places[0].environ["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


def test_no_daemon_outlives_a_killed_stack(make_places: MakePlaces) -> None:
    environ = {**os.environ, **make_places()[0].environ}
    with subprocess.Popen([sys.executable, "-c", _HOLDER], env=environ, stdout=subprocess.PIPE, text=True) as holder:
        pipes = holder.stdout.readline().strip()
        daemon = _daemon(pipes)
        keepers = psutil.Process(holder.pid).children()
        holder.send_signal(signal.SIGKILL)
    assert _gone(daemon)
    assert not psutil.wait_procs(keepers, timeout=20)[1]
    assert not Path(pipes).parent.exists()


def test_signals_end_no_daemon_that_the_stack_still_needs(make_places: MakePlaces, tmp_path: Path) -> None:
    environ = {**os.environ, **make_places()[0].environ}
    command = [
        sys.executable,
        "-m",
        "cosyserve.host.supervision.mps_keeper",
        str(tmp_path / "bin" / "nvidia-cuda-mps-control"),
    ]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        daemon = _daemon(json.loads(keeper.stdout.readline())["pipes"])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            keeper.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            keeper.wait(0.5)
        assert daemon.is_running()
        keeper.stdin.close()
        assert keeper.wait(20) == 0
    assert _gone(daemon)
    assert not _left(tmp_path)


def test_which_way_is_wanted() -> None:
    assert wanted_way({}) == "auto"
    assert wanted_way({"COSYSERVE_GPU_SHARING": "off"}) == "off"
    assert wanted_way({"COSYSERVE_GPU_SHARING": "off"}, "auto") == "auto"
    with pytest.raises(SettingsError, match="COSYSERVE_GPU_SHARING='mps' is none of auto, off"):
        wanted_way({"COSYSERVE_GPU_SHARING": "mps"})


def _spread(make_places: MakePlaces, *engines: tuple[str, str]) -> list[ProcessSpec]:
    """Engines by service and the one GPU that each sees."""
    environ = make_places()[0].environ
    return [
        ProcessSpec(
            service,
            number,
            "127.0.0.1:1",
            {**environ, f"COSYSERVE_{service.upper()}_DEVICE": "cuda", "CUDA_VISIBLE_DEVICES": gpu},
        )
        for number, (service, gpu) in enumerate(engines)
    ]


async def test_each_shared_gpu_is_reported_and_one_daemon_serves_all(
    make_places: MakePlaces, lines: list[str], tmp_path: Path
) -> None:
    engines = (("llm", "0"), ("token2wav", "0"), ("llm", "1"), ("token2wav", "1"), ("token2wav", "2"))
    async with shared_gpu(_spread(make_places, *engines), "auto", lines.append) as places:
        pipes = [place.environ.get("CUDA_MPS_PIPE_DIRECTORY") for place in places]
    assert len(set(pipes[:4])) == 1
    assert pipes[0] is not None
    assert pipes[4] is None
    way = "run on one GPU at the same time, through an MPS daemon of their own"
    assert lines == [f"llm.0, token2wav.1 {way}", f"llm.2, token2wav.3 {way}"]
    assert [call[0] for call in _calls(tmp_path)] == ["-d", "quit -t 3"]


async def test_two_decoders_on_one_gpu_leave_the_other_gpu_its_daemon(
    make_places: MakePlaces, lines: list[str]
) -> None:
    engines = (("token2wav", "0"), ("token2wav", "0"), ("llm", "1"), ("token2wav", "1"))
    async with shared_gpu(_spread(make_places, *engines), "auto", lines.append) as places:
        assert [bool(place.environ.get("CUDA_MPS_PIPE_DIRECTORY")) for place in places] == [False, False, True, True]
    assert lines == [
        "warning: token2wav.0, token2wav.1 share a GPU in turns: more than one of them is token2wav; give each a GPU "
        "of its own",
        "llm.2, token2wav.3 run on one GPU at the same time, through an MPS daemon of their own",
    ]
