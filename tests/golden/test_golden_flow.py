"""The flow against the reference arrays, and the comparison against itself: it must notice what it
is there to notice.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tools.verify.flow import verify
from tools.verify.report import Report

TINY = Path(__file__).parent / "tiny"
FILES = ("flow_encoder.npz", "estimator.npz", "flow_mel.npz")


def test_every_array_of_the_flow_is_within_tolerance() -> None:
    report = Report()
    verify(TINY, report)
    assert report.ok, report.as_table()
    compared = {row.array.split(" ")[0] for row in report.rows}
    inputs = {
        "prompt_token",
        "token",
        "spk_embedding",
        "prompt_feat",
        "x",
        "mask",
        "mask_partial",
        "mu",
        "t",
        "spks",
        "cond",
        "n_calls",
    }
    for file in FILES:
        with np.load(TINY / file) as arrays:
            left = {name for name in arrays.files if f"{file}/{name}" not in compared} - inputs
        assert not [name for name in left if not name.startswith("call")]
    assert "flow_mel.npz/mel_streaming_finalize (blocks)" in {row.array for row in report.rows}


def _with(directory: Path, file: str, **changes: object) -> Report:
    for name in ("cosyvoice2.yaml", "flow.pt", *FILES):
        shutil.copy(TINY / name, directory / name)
    with np.load(TINY / file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        else:
            arrays[name] = arrays.get(name, np.zeros(1)) + change
    np.savez(directory / file, **arrays)
    report = Report()
    verify(directory, report)
    return report


@pytest.mark.parametrize(
    ("file", "array", "change", "verdict"),
    [
        ("flow_mel.npz", "mel_chunk1_full", 1e-4, "FAIL"),
        ("flow_mel.npz", "rand_noise", 1e-6, "FAIL"),
        ("estimator.npz", "out_streaming", 1e-4, "FAIL"),
        ("flow_encoder.npz", "layer0_out", None, "MISSING"),
        ("flow_encoder.npz", "layer9_out", 1.0, "MISSING"),
        ("estimator.npz", "mu", None, "MISSING"),
    ],
)
def test_a_difference_is_noticed(tmp_path: Path, file: str, array: str, change: float | None, verdict: str) -> None:
    bad = [(row.array, row.verdict) for row in _with(tmp_path, file, **{array: change}).rows if row.verdict != "ok"]
    assert bad == [(f"{file}/{array}", verdict)]
