"""Readings of shifted copies of a recording, and what they agree on."""

from pathlib import Path

import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.shifted_copies import agreed, copies_of, shifted


def test_each_digit_is_what_most_readings_have() -> None:
    assert agreed([[0, 5, 6560]]) == (0, 5, 6560)
    # Base 3: 11 is 102, 14 is 112, 9 is 100; the middle digit is 0 twice, the last one 2 twice.
    assert agreed([[14], [11], [9]]) == (11,)
    assert agreed([[1], [2]]) == (1,)
    assert agreed([[0], [2], [1], [2], [1]]) == (1,)


def test_copies_are_shifted_both_ways_and_as_long() -> None:
    wave = torch.arange(1.0, 101.0)
    own, later, earlier, *rest = shifted(wave, 1000, 4)
    assert torch.equal(own, wave)
    assert torch.equal(later, torch.cat((torch.zeros(4), wave[:96])))
    assert torch.equal(earlier, torch.cat((wave[4:], torch.zeros(4))))
    assert [len(each) for each in rest] == [100, 100]
    assert [len(each) for each in shifted(wave[:3], 1000, 4)] == [3] * 5


@pytest.mark.parametrize(("yaml", "copies"), [("", 0), ("speech_tokenizer: {shifted_copies: 4}", 4)])
def test_the_directory_says_how_many(tmp_path: Path, yaml: str, copies: int) -> None:
    (tmp_path / "cosyvoice2.yaml").write_text(f"sample_rate: 24000\n{yaml}\n")
    assert copies_of(ModelDirectory(tmp_path)) == copies


@pytest.mark.parametrize("value", ["3", "10", "-2", "true", "'4'"])
def test_other_numbers_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "cosyvoice2.yaml").write_text(f"speech_tokenizer: {{shifted_copies: {value}}}\n")
    with pytest.raises(ModelError, match="even number from 0 to 8"):
        copies_of(ModelDirectory(tmp_path))
