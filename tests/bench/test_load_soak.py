"""A few seconds of the soak under load: who hangs up is counted, every process is watched, nothing
fails.
"""

import argparse
from pathlib import Path

from bench.load.flat_memory import verdict
from bench.load_soak import soak
from bench.parts.part import ResultsFile


async def test_a_short_soak_under_load_watches_every_process(tmp_path: Path) -> None:
    options = argparse.Namespace(
        model=Path("models/demo"), device=None, set=[], streams=3, minutes=0.05, connections=2, seed=3
    )
    await soak(options, results := ResultsFile(tmp_path / "soak.json"))
    assert results["heard_out"] + results["hung_up"] >= 3
    assert {"frontend.0", "llm.0", "token2wav.0", "orchestrator.0"} <= set(results["samples"])
    assert all(megabytes > 10 for points in results["samples"].values() for _, megabytes in points)
    assert results["failed"] == 0
    assert not [wrong for wrong in verdict(results) if wrong.startswith("failed")]
    assert ResultsFile(tmp_path / "soak.json")["seconds"] == results["seconds"]
