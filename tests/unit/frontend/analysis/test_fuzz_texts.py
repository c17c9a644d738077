"""A short run of the long target `make fuzz`."""

import pytest

from tools.fuzz import texts


def test_a_few_hundred_mutated_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert texts.main(["--count", "300", "--seed", "77"]) == 0
    said = capsys.readouterr().out
    assert "300 texts" in said
    assert "no failure" in said


def test_a_failure_is_reported_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(texts, "LONGEST_SENTENCE", 3)
    assert texts.main(["--count", "20", "--seed", "1"]) == 1
    assert "Failure: a sentence of" in capsys.readouterr().out
