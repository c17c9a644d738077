"""The bundled model speaks: a short form of `make quality`, through all services, read back by a
recogniser.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.stacks.up_process import ROOT

LARGEST_WORD_ERROR_RATE = 0.1
"""Of each voice over eight sentences, 58 words: 0.03 and none on the machine of the README, and
room for processors that draw other tokens. What is no speech at all has 1.0."""

REPLIES = 6
LARGEST_WORD_ERROR_RATE_OF_REPLIES = 0.25
"""Of each voice, by one recogniser, over six replies of some 35 words: whole sentences that are not
spoken have more.
"""


def test_a_recogniser_understands_every_voice(tmp_path: Path) -> None:
    measured = tmp_path / "quality.json"
    options = ["--count", "8", "--words-only", "--json", str(measured), "--max-wer", str(LARGEST_WORD_ERROR_RATE)]
    command = [sys.executable, "-m", "tools.quality", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert measured.is_file(), done.stderr
    voices = json.loads(measured.read_text())["voices"]
    assert len(voices) >= 2
    for voice, quality in voices.items():
        assert len(quality["sentences"]) == 8
        assert quality["errors"]["rate"] <= LARGEST_WORD_ERROR_RATE, f"{voice}\n{done.stdout}"
        assert quality["faults"]["silent"] == quality["faults"]["runs on"] == 0, f"{voice}\n{done.stdout}"
    assert done.returncode == 0, done.stderr


def test_short_replies_keep_their_words(tmp_path: Path) -> None:
    measured = tmp_path / "replies.json"
    options = ["--count", str(REPLIES), "--seeds", "1", "--one-ear", "--json", str(measured)]
    limits = ["--max-wer", str(LARGEST_WORD_ERROR_RATE_OF_REPLIES), "--max-twice", "0"]
    command = [sys.executable, "-m", "tools.quality.replies", *options, *limits]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert measured.is_file(), done.stderr
    runs = json.loads(measured.read_text())["runs"]
    assert len(runs) >= 2
    for run in runs:
        assert len(run["replies"]) == REPLIES
        assert [reply["text"] for reply in run["replies"] if reply["too_short"]] == [], done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
