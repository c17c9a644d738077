"""Sentences in batches: the tokens of a batch are generated at once, and the table follows from
what was measured.
"""

import argparse
from pathlib import Path

from bench.offline import measure
from bench.parts.part import ResultsFile
from bench.reports.tables import offline


def test_the_factor_is_all_seconds_by_audio() -> None:
    cost = {"engines": "fast", "batch": 8, "sentences": 16, "audio": 50.0, "llm": 0.5, "token2wav": 1.5}
    assert offline([cost])[2] == "| fast | 8 | 16 | 50.0 | 0.50 | 1.50 | 2.00 | 0.0400 |"


async def test_a_batch_of_the_bundled_model_is_spoken(tmp_path: Path) -> None:
    options = argparse.Namespace(model=Path("models/demo"), device="cpu", engines="readable", batches=[2], sentences=1)
    await measure(options, ResultsFile(tmp_path / "offline.json"))
    cost = ResultsFile(tmp_path / "offline.json")["2"]
    assert (cost["batch"], cost["sentences"]) == (2, 2)
    assert 3.0 < cost["audio"] < 12.0
    assert min(cost["llm"], cost["token2wav"]) > 0
