"""The streamed decoder against the reference vectors."""

from pathlib import Path

from tools.verify.report import Report
from tools.verify.token2wav import verify

GOLDEN = Path(__file__).parent / "tiny"


def test_streamed_token2wav_agrees_with_the_reference() -> None:
    report = Report()
    verify(GOLDEN, report)
    assert report.ok, report.as_table()
    assert len(report.rows) == 3 + 3 * 4 + 3 * 3


def test_a_directory_without_the_recording_is_no_success(tmp_path: Path) -> None:
    report = Report()
    verify(tmp_path, report)
    assert not report.ok
