"""A short form of the table of faults: a speech-token service is killed under load, and no listener
loses anything.
"""

import json
from pathlib import Path

import pytest

from bench.faults.__main__ import main

FEW = ("frontend=1", "token2wav=1", "orchestrator=1")


def test_a_killed_stage_is_heard_by_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "faults.json"
    few = [argument for replicas in FEW for argument in ("--replicas", replicas)]
    fast = [
        "--set",
        "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS=4",
        "--seeds",
        "1",
        "--seconds",
        "1",
        "--rate",
        "2",
        "--under-way",
        "2",
    ]
    assert main(["--only", "llm", "--faults", "kill", *few, *fast, "--json", str(figures)]) == 0
    none, kill = json.loads(figures.read_text())["rows"]
    assert (none["fault"], kill["service"], kill["fault"]) == ("none", "llm", "kill")
    assert kill["requests"] == kill["identical"] > 0
    assert none["errors"] == kill["errors"] == kill["cut"] == 0
    assert "| llm | kill |" in capsys.readouterr().out
