"""Commands that measure or prove: `demo`, `verify` and `bench`."""

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.stacks.up_process import run_cosyserve


def test_demo_speaks_a_sentence_into_a_file_and_says_how_soon(tmp_path: Path) -> None:
    target = tmp_path / "hello.wav"
    done = run_cosyserve("demo", "-o", str(target), "--text", "Hello, you can hear me now.")
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


def test_the_table_of_verify_ends_with_a_count() -> None:
    done = run_cosyserve("verify", "tests/golden/tiny")
    assert done.returncode == 0, done.stderr
    assert re.match(r"(\d+) comparisons, \1 within tolerance", done.stdout.splitlines()[-1])


def test_verify_of_something_else_is_one_line(tmp_path: Path) -> None:
    done = run_cosyserve("verify", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "no such directory" in done.stderr


def test_each_load_is_an_entry_of_the_report(endpoint: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there.\n\nGood morning.\n", encoding="utf-8")
    done = run_cosyserve("bench", endpoint, "--streams", "1,2", "--seconds", "1", "--texts", str(texts), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["server"] == endpoint
    assert [load["streams"] for load in report["loads"]] == [1, 2]
    for load in report["loads"]:
        assert load["completed"] > 0
        for name in ("first_byte_milliseconds", "first_audible_milliseconds"):
            figures = [load[name][f"p{percent}"] for percent in (50, 90, 95, 99)]
            assert figures == sorted(figures)
            assert figures[0] > 0
        assert load["first_byte_milliseconds"]["p50"] <= load["first_audible_milliseconds"]["p50"]
        assert load["audio_seconds_a_second"] > 0


def test_the_table_has_a_row_for_each_load(endpoint: str) -> None:
    done = run_cosyserve("bench", endpoint, "--rate", "3", "--seconds", "1", "--offline")
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.startswith("load ")
    assert row.startswith("3 a second ")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--streams", "0"), 2, "'0' is no list of numbers from 1 to 4096 such as 1,4,16"),
        (("--seconds", "soon"), 2, "'soon' is no number above 0"),
        (("127.0.0.1:9",), 1, "127.0.0.1:9: nothing can be reached there"),
        (("--texts", "/dev/null"), 2, "/dev/null: holds no text; one a line is expected"),
    ],
)
def test_what_cannot_be_measured_is_said(arguments: tuple[str, ...], status: int, said: str) -> None:
    done = run_cosyserve("bench", *arguments)
    assert done.returncode == status
    assert said in done.stderr
