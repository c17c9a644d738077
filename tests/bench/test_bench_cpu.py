"""`make bench-cpu` in its shortest form: real services, one report."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_form_measures_and_reports(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "bench.cpu", "--quick", "--out", str(tmp_path))
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert {run["state"] for run in report["parts"].values()} == {"done"}
    (level,) = report["figures"]["closed"]["levels"]
    assert level["streams"] == 1
    assert level["p50"] > 0
    text = (tmp_path / "report.md").read_text()
    assert "| models/demo | English, plain words | normalised |" in text
    assert "| closed | 1 |" in text
