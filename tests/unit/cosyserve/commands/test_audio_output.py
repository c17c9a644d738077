"""What commands show: progress on a terminal and nowhere else, and the columns of the list of
voices.
"""

import argparse
import io
import time

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from cosyserve.client.types import VoiceLine
from cosyserve.commands.terminal.audio_output import _Output
from cosyserve.commands.voices import _COLUMNS, _cells
from cosyserve.errors import DeadlineExceeded, Unavailable


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
