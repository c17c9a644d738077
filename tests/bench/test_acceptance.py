"""`cosyserve accept` on the bundled model: a few steps, resumed, and what cannot run here."""

import json
from pathlib import Path

import pytest

from tests.stacks.up_process import run_cosyserve


def accepted(out: Path, *words: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit status, steps by name, and what was said on standard error."""
    done = run_cosyserve("accept", "models/demo", "--out", str(out), "--json", *words, seconds=280)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["status"] == done.returncode
    return done.returncode, {step["name"]: step for step in report["steps"]}, done.stderr


def test_steps_are_done_once_and_what_was_not_asked_for_is_not_run(tmp_path: Path) -> None:
    words = ("--part", "inspect", "--part", "reference")
    status, found, said = accepted(tmp_path, *words)
    assert status == 3
    assert found["inspect"]["verdict"] == "passed"
    assert "2 voices" in found["inspect"]["figure"]
    assert (found["reference"]["verdict"], found["reference"]["figure"]) == ("not run", "")
    assert found["load"]["why"] == "not asked for"
    assert "inspect: done" in said
    status, found, said = accepted(tmp_path, *words)
    assert (status, found["inspect"]["verdict"]) == (3, "passed")
    assert "inspect: begun" not in said
    assert "| inspect | passed |" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_what_is_no_model_directory_is_wrong_usage(tmp_path: Path) -> None:
    done = run_cosyserve("accept", str(tmp_path / "nothing"), "--json")
    assert done.returncode == 2
    assert "nothing" in json.loads(done.stdout)["error"]["message"]
    done = run_cosyserve("accept", "models/demo", "--json", "--token2wav-model", "tests/golden/tiny3")
    assert done.returncode == 2
    assert "decode other speech tokens" in json.loads(done.stdout)["error"]["message"]
    assert run_cosyserve("accept").returncode == 2
    assert "usage: cosyserve accept" in run_cosyserve("accept", "--help").stdout


@pytest.mark.parametrize("name", ["converted", "sound-onnxruntime"])
def test_a_conversion_and_an_engine_against_the_readable_one(tmp_path: Path, name: str) -> None:
    """What a step needs goes before it."""
    words = ("accept", "models/demo", "--out", str(tmp_path / "out"), "--json", "--part", name)
    done = run_cosyserve(*words, seconds=290, COSYSERVE_CACHE_DIR=str(tmp_path / "cache"))
    found = {step["name"]: step for step in json.loads(done.stdout)["steps"]}
    assert found[name]["verdict"] == "passed", (found[name], done.stderr)
