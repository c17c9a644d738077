"""The sentences of a whole text in the split mode of the model directory."""

import shutil
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.prepared_text import Reading
from services.frontend.normalization.normalize import Normalizer
from services.frontend.segmentation.sentence_splitter import Split, split_mode
from services.frontend.tokenizers.bpe import TextTokenizer

ROOT = Path(__file__).parents[4]
TINY = ROOT / "tests/golden/tiny"
TEXT = "No problem! Anything else? What? Why? How?"


def analyzer(split: Split, *, reference: bool = False) -> Analyzer:
    return Analyzer(Normalizer(None, reference=reference), TextTokenizer(ModelDirectory(TINY)), split=split)


def texts(analyzer: Analyzer, text: str, reading: Reading) -> list[str]:
    return [sentence.text.strip() for sentence in analyzer.sentences(text, "en", reading)]


def test_the_bundled_model_asks_for_sentences_and_a_published_one_for_none() -> None:
    assert split_mode(ModelDirectory(ROOT / "models/demo")) is Split.SENTENCES
    assert split_mode(ModelDirectory(TINY)) is Split.JOINED


@pytest.mark.parametrize("section", ["text:\n  split: 'words'\n", "text: 5\n", "text:\n  split: [1]\n"])
def test_another_value_is_refused_by_name(tmp_path: Path, section: str) -> None:
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    path = tmp_path / "cosyvoice2.yaml"
    path.write_text(path.read_text() + "\n" + section)
    with pytest.raises(ModelError, match=r"text\.split is .*expected joined or sentences"):
        split_mode(ModelDirectory(tmp_path))


def test_sentences_stay_apart_where_the_model_asks_for_it() -> None:
    assert texts(analyzer(Split.SENTENCES), TEXT, Reading()) == [
        "No problem!",
        "Anything else?",
        "What?",
        "Why?",
        "How?",
    ]


def test_the_reference_joins_and_so_does_a_request_that_asks_for_it() -> None:
    assert texts(analyzer(Split.JOINED), TEXT, Reading()) == [TEXT]
    assert texts(analyzer(Split.SENTENCES), TEXT, Reading(joined=True)) == [TEXT]
    assert texts(analyzer(Split.SENTENCES, reference=True), TEXT, Reading()) == [TEXT]


def test_a_long_sentence_is_still_cut_to_the_limit() -> None:
    clause = "and then it went on to say the same thing again, "
    result = texts(analyzer(Split.SENTENCES), clause * 30 + "at last. Yes.", Reading())
    assert len(result) > 2
    assert result[-1] == "Yes."
    assert "".join(result).count("again") == 30
