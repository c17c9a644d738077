"""The report of a machine without a GPU, on figures made up here."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cpu import parts, quick, ratios, write
from bench.parts.ledger import DONE, LATE, Ledger, Run
from bench.parts.provenance import Subject
from bench.reports.serving_report import Level
from cosyserve.client.types import STAGES


def level(streams: int, p50: float, audio: float) -> Level:
    return Level(
        "closed", streams, 9, 0, 0, p50, p50, p50, 0.3, audio, 1.0, 0.0, dict.fromkeys(STAGES, 1.0), None
    )  # fmt: skip


def results() -> dict[str, Any]:
    def cost(profile: str, seconds: int, cpu: float) -> dict[str, Any]:
        return {
            "profile": profile,
            "audio_seconds": seconds,
            "wall_seconds": cpu,
            "wall_per_audio_second": 0.1,
            "cpu_seconds": cpu,
            "first_sound_seconds": 0.2,
        }

    def way(name: str, scale: float) -> dict[str, Any]:
        return {
            "way": name,
            "positions": 187,
            "new_prompt": 9 * scale,
            "known_prompt": 6 * scale,
            "token": scale,
            "decision": 0.1,
        }

    return {
        "llm": {"costs": [way("readable", 2.0), way("served", 1.0) | {"new_prompt": 12.0}]},
        "token2wav": {"costs": [cost("continuous", 4, 1.2), cost("continuous", 16, 5.6), cost("upstream", 16, 7.0)]},
        "prompt": {"costs": [{"prompt_seconds": 10, "cold_seconds": 0.9, "warm_seconds": 0.3, "cold_by_warm": 3.0}]},
        "frontend": {"costs": [{"model": "demo", "texts": "plain", "work": "split", "median": 0.5, "p95": 0.75}]},
    }


def test_ratios_are_of_the_same_run() -> None:
    by_name = dict(ratios(results(), [level(1, 200.0, 3.0), level(4, 500.0, 3.3)]))
    assert by_name == {
        "speech-token model, a token: readable by served": pytest.approx(2.0),
        "speech-token model, the prompt of a known voice: readable by served": pytest.approx(2.0),
        "speech-token model, that of a new one: readable by served": pytest.approx(1.5),
        "token2wav, continuous: CPU for a second of audio in 16 s by one in 4 s": pytest.approx(0.35 / 0.3),
        "token2wav, 16 s: upstream by continuous": pytest.approx(1.25),
        "first sound of token2wav behind a prompt of 10 s: nothing kept by kept": 3.0,
        "first sound p50, 4 streams by one": 2.5,
        "audio a second, 4 streams by one": pytest.approx(1.1),
    }
    assert not dict(ratios({}, [level(2, 1.0, 1.0)]))


def test_the_report_shows_what_there_is(tmp_path: Path) -> None:
    every = parts(tmp_path, Path("models/demo"), 1.0)
    assert {part.name for part in quick(tmp_path, Path("models/demo"))} <= {part.name for part in every}
    for name, figures in results().items():
        (tmp_path / f"{name}.json").write_text(json.dumps(figures))
    ledger = Ledger(tmp_path, Subject("machine", {}, "abc", ""), {part.name: Run(DONE, 1.0, [], []) for part in every})
    ledger.runs["closed"] = Run(LATE, 240.0, [], ["2 of 3 loads"])
    write(tmp_path, every, ledger)
    text = (tmp_path / "report.md").read_text()
    shown = (
        "**closed: late**", "2 of 3 loads", "| continuous | 16 |", "| served | 187 | 12 | 6 | 1 | 0.1 |",
        "| demo | plain | split | 0.5 | 0.75 |",
    )  # fmt: skip
    assert [line for line in shown if line not in text] == []
    assert "## Served" not in text
    assert (
        json.loads((tmp_path / "report.json").read_text())["ratios"]["token2wav, 16 s: upstream by continuous"] == 1.25
    )
