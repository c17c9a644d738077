"""What the command line says when something is not there or not right, to people and to
programs.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyserve.__main__ import main
from tests.contract.command_line.test_command_line import TEXT, _cosyserve
from tests.stacks.up_process import ROOT

COMMANDS = [
    ("say", "x", "-o", "-"),
    ("convert", "README.md", "-o", "-"),
    ("voices",),
    ("voices", "show", "x"),
    ("info",),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_not_there_is_reported_within_five_seconds(command: tuple[str, ...]) -> None:
    begin = time.monotonic()
    done = _cosyserve(*command, "--server", "127.0.0.1:1")
    # Five on an idle machine, with the start of Python; it was ninety.
    assert time.monotonic() - begin < 10
    assert done.returncode == 1
    said = b"cosyserve: UNAVAILABLE: server at 127.0.0.1:1: nothing can be reached there; is it running? cosyserve up\n"
    assert (done.stdout, done.stderr) == (b"", said)


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Where connections are taken and nothing is ever said."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        yield f"127.0.0.1:{door.getsockname()[1]}"


@pytest.mark.parametrize("given", [(), ("--timeout", "1")])
def test_an_address_that_takes_connections_and_says_nothing(silent_address: str, given: tuple[str, ...]) -> None:
    begin = time.monotonic()
    done = _cosyserve("say", "x", "-o", "-", "--server", silent_address, *given)
    assert time.monotonic() - begin < 15
    assert done.returncode == 1
    # A second may be over before the first answer of the address could have come.
    assert b"is it running? cosyserve up" in done.stderr or (
        given and b"not over within the 1 s of --timeout" in done.stderr
    )


def test_a_timeout_bounds_everything(endpoint: str, tmp_path: Path) -> None:
    """Also the waiting for a reader who takes nothing."""
    command = [sys.executable, "-m", "cosyserve", "say", TEXT * 20, "-o", "-", "--timeout", "2", "--server", endpoint]
    begin = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(30) == 1
    assert time.monotonic() - begin < 12
    assert said.startswith(b"cosyserve: DEADLINE_EXCEEDED: ")


@pytest.mark.parametrize(
    ("arguments", "code", "status", "message"),
    [
        (("say", "x", "-o", "a.wav", "--voice", "nobody"), 1, "NOT_FOUND", "cosyserve voices list"),
        (("say", "x", "-o", "a.mp3"), 2, "", "endings that work"),
        (("say", "x", "-o", "a.wav", "--seed", "-1"), 2, "", "argument --seed"),
        (("say", "x", "-o", "/nowhere/a.wav"), 1, "", "/nowhere is no directory"),
        (("voices", "show", "nobody"), 1, "NOT_FOUND", "there is no voice 'nobody'"),
    ],
)
def test_errors_are_json_objects_where_results_are(
    endpoint: str, tmp_path: Path, arguments: tuple[str, ...], code: int, status: str, message: str
) -> None:
    done = _cosyserve(*arguments, "--json", "--server", endpoint)
    assert (done.returncode, done.stderr) == (code, b"")
    error = json.loads(done.stdout)["error"]
    assert error["status"] == status
    assert message in error["message"]


def test_with_sound_on_standard_output_the_json_error_is_beside_it(endpoint: str) -> None:
    done = _cosyserve("say", "x", "-o", "-", "--voice", "nobody", "--json", "--server", endpoint)
    assert (done.returncode, done.stdout) == (1, b"")
    assert json.loads(done.stderr)["error"]["status"] == "NOT_FOUND"


def test_an_unknown_voice_is_told_where_voices_are_named(endpoint: str) -> None:
    said = _cosyserve("say", "x", "-o", "-", "--voice", "nobody", "--server", endpoint).stderr.decode()
    assert f"(cosyserve voices list --server {endpoint} names all voices)" in said
    listed = _cosyserve("voices", "list", "--server", endpoint)
    assert listed.returncode == 0


def test_a_reader_who_leaves_a_list_is_no_error(endpoint: str) -> None:
    command = [sys.executable, "-m", "cosyserve", "voices", "list", "--server", endpoint]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    name, version = capsys.readouterr().out.split()
    assert name == "cosyserve"
    assert version[0].isdigit() or version == "unknown"


def test_words_need_no_quotes(endpoint: str) -> None:
    options = ("-o", "-", "--seed", "4", "--server", endpoint)
    whole = _cosyserve("say", "Hello wide world.", *options)
    assert whole.returncode == 0, whole.stderr
    assert _cosyserve("say", "Hello", "wide", "world.", *options).stdout == whole.stdout
    assert _cosyserve("say", "-", *options, stdin=b"Hello wide world.").stdout == whole.stdout
    nothing = _cosyserve("say", *options, stdin=b"Hello wide world.")
    assert nothing.returncode == 2
    assert b"- to read it from standard input" in nothing.stderr


def test_figures_have_one_style(endpoint: str, tmp_path: Path) -> None:
    told = _cosyserve("info", "--server", endpoint).stdout.decode()
    assert "e+" not in told
    done = json.loads(
        _cosyserve("say", TEXT, "-o", str(tmp_path / "out.wav"), "--server", endpoint, "--json").stdout, parse_float=str
    )
    figures = [done["seconds"], done["real_time_factor"], *done["server"]["total"].values()]
    assert all(len(figure.partition(".")[2]) <= 6 for figure in figures if isinstance(figure, str))
