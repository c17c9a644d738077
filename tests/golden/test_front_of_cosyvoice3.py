"""Stages of `verify` before the speech-token model and after it, over the bundle of CosyVoice3."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tools.verify.__main__ import SILENT, run_stage

TINY = Path(__file__).parent / "tiny"
TINY3 = Path(__file__).parent / "tiny3"


@pytest.mark.parametrize(("stage", "rows"), [("text", 341), ("features", 10), (SILENT, 4)])
def test_a_stage_makes_what_the_reference_recorded(stage: str, rows: int) -> None:
    report = run_stage(stage, TINY3)
    assert [row for row in report.rows if row.verdict != "ok"] == []
    assert len(report.rows) == rows


def test_a_token_more_is_noticed(tmp_path: Path) -> None:
    shutil.copy(TINY3 / "cosyvoice3.yaml", tmp_path)
    with np.load(TINY3 / "silent.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["kept"] = np.insert(arrays["kept"], 5, 2241)
    np.savez(tmp_path / "silent.npz", **arrays)
    bad = {row.array: row.verdict for row in run_stage(SILENT, tmp_path).rows if row.verdict != "ok"}
    assert bad == {"silent.npz/kept": "FAIL"}
