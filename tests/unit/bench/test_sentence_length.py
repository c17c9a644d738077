"""Sentences of a length that is asked for: every text gets its share, and nothing is left to the
model.
"""

from pathlib import Path

import pytest

from bench.load import sentence_length
from bench.load.sentence_length import sentences_of
from bench.load.stack import TEXTS
from cosyserve.model_directory import ModelDirectory
from services.llm.generation.config import read_config
from tests.stacks.up_process import DEMO, TINY


def test_texts_take_so_many_seconds_on_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [40 + 5 * at for at in range(len(TEXTS))]
    monkeypatch.setattr(sentence_length, "text_ids", lambda model, texts: [(0,) * count for count in counts])
    made = sentences_of(DEMO, 10.0, tmp_path)
    lengths = read_config(ModelDirectory(made)).lengths
    shortest, longest = ([bound(count) for count in counts] for bound in (lengths.shortest, lengths.longest))
    assert shortest == longest
    assert sum(longest) / len(longest) == pytest.approx(250, abs=1)
    assert {each.name for each in made.iterdir()} == {each.name for each in DEMO.iterdir()}
    assert (made / "flow.pt").samefile(DEMO / "flow.pt")


def test_a_yaml_without_ratios_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_length, "text_ids", lambda model, texts: [(0,)])
    with pytest.raises(ValueError, match="yaml has 0 of min_token_text_ratio and max_token_text_ratio"):
        sentences_of(TINY, 10.0, tmp_path)
