"""What commands read and print: standard input as it arrives, progress, columns and numbers; and
Ctrl-C in a program whose parent ignored it.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from cosyserve.client.types import VoiceLine
from cosyserve.commands.terminal.audio_output import _Output, read_text
from cosyserve.commands.terminal.output import interrupts_enabled, number, plain
from cosyserve.commands.voices import _COLUMNS, _cells
from cosyserve.errors import DeadlineExceeded, Unavailable


async def test_characters_come_whole_however_their_bytes_are_cut() -> None:
    reading, writing = os.pipe()
    arriving = read_text(reading)
    os.write(writing, "é".encode()[:1])
    os.write(writing, "é".encode()[1:] + b" \xff ")
    os.close(writing)
    assert "".join([piece async for piece in arriving]) == "é \ufffd "
    os.close(reading)


async def test_what_cannot_be_read_is_an_error_and_no_silence() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Bad file descriptor"):
        await anext(read_text(writing))
    os.close(reading)
    os.close(writing)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
async def test_progress_is_shown_on_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    out = _Output(argparse.Namespace(output=None, encoding=Encoding.LINEAR16, rate=8_000), None)
    for _ in range(2):
        await out.play(bytes(16_000))
    out.close()
    wiped = "\r\x1b[K"
    shown = f"{wiped}1.0 s of audio ...{wiped}2.0 s of audio ...{wiped}"
    assert stderr.getvalue() == (shown if terminal else "")


@pytest.mark.parametrize("key", ["sex", "gender"])
def test_a_voice_is_listed_with_language_and_sex(key: str) -> None:
    voice = VoiceLine(
        "anna", "c0ffee", 2.44, True, False, "Anna\x1b[31m", "en-GB", "2026-11-20T10:00:00Z", {key: "female"}
    )
    assert dict(zip(_COLUMNS, _cells(voice), strict=True)) == {
        "ID": "anna",
        "LANGUAGE": "en-GB",
        "SEX": "female",
        "PROMPT": "2.4 s",
        "MADE": "2026-11-20T10:00:00Z",
        "CONTENT": "c0ffee",
        "NAME": "Anna [31m (default)",
    }


async def test_a_timeout_bounds_how_long_a_lost_connection_is_taken_up() -> None:
    """Three times thirty seconds otherwise."""
    begin = time.monotonic()
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises((DeadlineExceeded, Unavailable)):
            await client.synthesize("x", timeout=0.5, resumptions=3).read()
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (23068700.0, "23068700"),
        (16777216.0, "16777216"),
        (1.8399999999999999, "1.84"),
        (0.1 + 0.2, "0.3"),
        (5.0, "5"),
        (0.00002, "0.00002"),
    ],
)
def test_a_number_has_no_exponent_and_no_stray_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_json_has_no_stray_digits_at_any_depth() -> None:
    told = {
        "seconds": 1.8399999999999999,
        "many": [23068700.0, {"share": 0.1 + 0.2}],
        "name": "x",
        "whole": 3,
        "yes": True,
        "none": None,
    }
    assert json.dumps(plain(told)) == (
        '{"seconds": 1.84, "many": [23068700, {"share": 0.3}], "name": "x", "whole": 3, "yes": true, "none": null}'
    )


def test_a_child_that_inherited_a_deaf_ear_is_interrupted() -> None:
    program = (
        "import signal, time\n"
        "from cosyserve.commands.terminal.output import interrupts_enabled\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "try:\n"
        "    with interrupts_enabled():\n"
        "        print('up', flush=True)\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard', signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
    )
    command = ["sh", "-c", 'trap \'\' INT; exec "$0" -c "$1"', sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "heard True\n"
    assert process.returncode == 0


def test_other_handlers_and_other_threads_are_left_alone() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ours = signal.getsignal(signal.SIGINT)
        with interrupts_enabled():
            assert signal.getsignal(signal.SIGINT) is ours
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        seen: list[object] = []

        def enter() -> None:
            with interrupts_enabled():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert seen == [signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGINT, before)
