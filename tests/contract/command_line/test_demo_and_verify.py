"""The first two commands that a newcomer runs: sound, and proof."""

import json
import re
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np

from tests.stacks.up_process import ROOT


def _cosyserve(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cosyserve", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


def test_demo_speaks_a_sentence_into_a_file_and_says_how_soon(tmp_path: Path) -> None:
    target = tmp_path / "hello.wav"
    done = _cosyserve("demo", "-o", str(target), "--text", "Hello, you can hear me now.")
    assert done.returncode == 0, done.stderr
    with wave.open(str(target)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    assert len(samples) > 24_000
    assert 0.01 < np.sqrt(np.mean(samples**2)) < 0.5
    head, *rows = [line for line in done.stdout.splitlines() if "RTF" in line or "to first byte" in line]
    assert head.split()[:4] == ["first", "byte", "audible", "RTF"]
    for name, row in zip(("cold", "warm"), rows, strict=True):
        assert row.startswith(f"{name}, to first byte")
        first_byte, audible = (float(found) for found in re.findall(r"(\d+) ms", row)[:2])
        assert first_byte < audible < first_byte + 200
    for service in ("frontend.0", "llm.0", "token2wav.0", "orchestrator.0"):
        assert f"{service} serving after" in done.stderr


def test_verify_compares_every_array(tmp_path: Path) -> None:
    done = _cosyserve("verify", "tests/golden/tiny", "--json")
    assert done.returncode == 0, done.stderr
    stages = json.loads(done.stdout)["stages"]
    assert set(stages) >= {"text", "features", "llm", "flow", "vocoder", "token2wav"}
    rows = [row for stage in stages.values() for row in stage]
    assert len(rows) >= 150
    assert {row["verdict"] for row in rows} == {"ok"}


def test_verify_of_something_else_is_one_line(tmp_path: Path) -> None:
    done = _cosyserve("verify", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "no such directory" in done.stderr
