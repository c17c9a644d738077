"""`cosyserve bench` against a running system."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks.up_process import ROOT


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cosyserve", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_each_load_is_an_entry_of_the_report(endpoint: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there.\n\nGood morning.\n", encoding="utf-8")
    done = bench(endpoint, "--streams", "1,2", "--seconds", "1", "--texts", str(texts), "--json")
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
    done = bench(endpoint, "--rate", "3", "--seconds", "1", "--offline")
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
    done = bench(*arguments)
    assert done.returncode == status
    assert said in done.stderr
