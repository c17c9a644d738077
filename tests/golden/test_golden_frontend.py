"""The text front end, the voices and the prompt features against the reference bundle."""

import shutil
from pathlib import Path

import numpy as np

from tools.verify import features, text
from tools.verify.report import Report

TINY = Path(__file__).parent / "tiny"


def bad_rows(report: Report) -> list[str]:
    return [f"{row.array} {row.error} {row.note}" for row in report.rows if row.verdict != "ok"]


def test_every_feature_array_is_reproduced() -> None:
    report = Report()
    features.verify(TINY, report)
    assert bad_rows(report) == []
    assert len(report.rows) == 10


def test_every_text_case_and_voice_is_reproduced() -> None:
    report = Report()
    text.verify(TINY, report)
    assert bad_rows(report) == []
    names = {row.array.split("[")[0] for row in report.rows}
    assert {
        "text_frontend.json/encode",
        "text_frontend.json/text_normalize_without_wetext",
        "spk2info.pt/zs_a.prompt_mel",
    } <= names


def test_an_unknown_array_and_a_wrong_one_are_reported(tmp_path: Path) -> None:
    with np.load(TINY / "features.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "features.npz", **{**arrays, "mel24k": arrays["mel24k"] + 1.0, "novel": arrays["mel24k"]})
    report = Report()
    features.verify(tmp_path, report)
    assert {row.array: row.verdict for row in report.rows if row.verdict != "ok"} == {
        "features.npz/mel24k": "FAIL",
        "features.npz/novel": "MISSING",
    }


def test_a_changed_text_case_is_reported(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    path = bundle / "text_frontend.json"
    path.write_text(path.read_text(encoding="utf-8").replace("twelve items", "twelve things"), encoding="utf-8")
    report = Report()
    text.verify(bundle, report)
    assert [
        row.verdict for row in report.rows if row.array == "text_frontend.json/text_normalize_without_wetext[6].split"
    ] == ["FAIL"]
    assert not report.ok
