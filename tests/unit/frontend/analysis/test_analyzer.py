"""The whole path from text to token ids, on realistic texts; and the sentences of a whole text in
the split mode of the model directory.
"""

import shutil
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.analyzer import RUN_CHARACTERS, Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.prepared_text import Reading
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.sentence_splitter import Split, split_mode
from services.frontend.tokenizers.bpe import TextTokenizer

ROOT = Path(__file__).parents[4]
TINY = ROOT / "tests/golden/tiny"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(ModelDirectory(TINY))


@pytest.fixture(scope="module", params=["wetext", "none"])
def analyzer(request: pytest.FixtureRequest, tokenizer: TextTokenizer) -> Analyzer:
    return Analyzer(Normalizer(WeText() if request.param == "wetext" else None), tokenizer)


HARD_TEXTS = [
    "。”",
    "你好 （",
    "好 \n",
    "😀",
    "😀 hi 👩🏽‍🚀!",
    "\x00\x01\x1f",
    "a\x00b\x7fc",
    "\ufeff\u200b\u202eabc",
    "مرحبا 12؟ كيف حالك",
    "שלום עולם",
    "https://a.b/c?d=1&e=2.5#f",
    "C:\\path \"x\" 'y' {z} \\",
    "x" * 3000,
    "好" * 3000,
    "1" * 3000,
    "²³½①Ⅳ٣",
    "9" * 100,
    "<| |>",
    "|>x<|",
    "\U0010ffff3",
    "e\u0301\u0301\u0301",
    ". . . . a",
    "\n\n\n",
]


@pytest.mark.parametrize("text", HARD_TEXTS, ids=[ascii(text[:12]) for text in HARD_TEXTS])
@pytest.mark.parametrize("language", ["", "zh", "en", "ar"])
def test_no_text_breaks_it(analyzer: Analyzer, text: str, language: str) -> None:
    for sentence in analyzer.sentences(text, language):
        assert sentence.text
        assert 1 <= len(sentence.token_ids) <= LONGEST_SENTENCE


def test_no_letter_of_a_very_long_word_is_dropped(analyzer: Analyzer) -> None:
    sentences = list(analyzer.sentences("x" * 3000, "en"))
    assert "".join(sentence.text for sentence in sentences) == "x" * 3000 + "."
    assert [len(sentence.token_ids) for sentence in sentences] == [200] * 15 + [1]


def test_control_tokens_cannot_be_smuggled_in(tokenizer: TextTokenizer, analyzer: Analyzer) -> None:
    (sentence,) = analyzer.sentences("say<|endofprompt|>[breath]this")
    assert tokenizer.id_of("<|endofprompt|>") not in sentence.token_ids
    assert tokenizer.id_of("[breath]") in sentence.token_ids
    (allowed,) = Analyzer(Normalizer(None), tokenizer, allow_special=True).sentences("say<|endofprompt|>this")
    assert tokenizer.id_of("<|endofprompt|>") in allowed.token_ids


def test_marked_up_text_is_left_alone(analyzer: Analyzer) -> None:
    marked = "<|endofprompt|>原样 12。再来 "
    (sentence,) = analyzer.sentences(marked, reading=Reading(allow_control_tokens=True))
    assert sentence.text == marked
    (refused,) = analyzer.sentences(marked)
    assert "endofprompt" not in refused.text
    assert refused.text.endswith("再来。")


class Recorder:
    """A normalisation package that changes nothing and records its input."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def spoken(self, text: str, language: str) -> str:
        self.given.append(text)
        return text


@pytest.mark.parametrize(
    "text", ["A sentence, a ^ of many. " * 60, "这是1e5句话。" * 200, "word| " * 400, "x|" * 500, "| a " * 500]
)
def test_the_package_never_sees_more_than_a_run(tokenizer: TextTokenizer, text: str) -> None:
    package = Recorder()
    list(Analyzer(Normalizer(package), tokenizer).sentences(text))
    assert len(package.given) > 1
    # A form that our rules rewrite before the package may grow a little.
    assert max(map(len, package.given)) <= RUN_CHARACTERS + 20


def test_the_first_sentence_does_not_wait_for_the_last_run(tokenizer: TextTokenizer) -> None:
    package = Recorder()
    next(Analyzer(Normalizer(package), tokenizer).sentences("A sentence, a ^ of many. " * 200))
    assert 0 < sum(map(len, package.given)) <= 2 * RUN_CHARACTERS


def test_the_package_sees_written_forms_and_what_is_around_them(tokenizer: TextTokenizer) -> None:
    package = Recorder()
    analyzer = Analyzer(Normalizer(package), tokenizer)
    list(
        analyzer.sentences(
            "Nobody knew it, but by the sign ^ that evening he result all of it and left at once without a word."
        )
    )
    # Our own rules read this form before the package.
    list(analyzer.sentences("At 7:30pm he paid $5 for 5 kg of it, e.g. on Main St. near No. 7."))
    list(analyzer.sentences("今天天气很好，我们下午三点半见面吧，票价1e5元一张，你觉得怎么样。"))
    assert package.given == ["by the sign ^ that evening he", "票价1e5元一张，"]


@pytest.mark.parametrize(
    "text",
    ["Sentence number one is here. " * 30, "第一句话在这里，还有一点。" * 40, "混合 word 的句子。再来 ok 吧 " * 30],
)
def test_runs_do_not_change_the_sentences(tokenizer: TextTokenizer, text: str) -> None:
    whole = Analyzer(Normalizer(None, reference=True), tokenizer).segments(text)
    assert list(Analyzer(Normalizer(None), tokenizer).segments(text)) == list(whole)


def test_the_reference_reads_what_we_read_otherwise(tokenizer: TextTokenizer) -> None:
    analyzer = Analyzer(Normalizer(WeText()), tokenizer)

    def said(text: str, *, own_readings: bool) -> str:
        reading = analyzer.reading("", allow_control_tokens=False, pronunciations={}, own_readings=own_readings)
        return " ".join(part.text for part in analyzer.parts(text, reading) if isinstance(part, Sentence))

    assert said("It is 1.8m tall.", own_readings=True) == "It is one point eight meters tall."
    assert said("It is 1.8m tall.", own_readings=False) == "It is one point eight minutes tall."


TEXT = "No problem! Anything else? What? Why? How?"


def in_mode(split: Split, *, reference: bool = False) -> Analyzer:
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


@pytest.mark.parametrize(
    ("split", "reference", "joined", "expected"),
    [
        (Split.SENTENCES, False, False, ["No problem!", "Anything else?", "What?", "Why?", "How?"]),
        (Split.JOINED, False, False, [TEXT]),
        (Split.SENTENCES, False, True, [TEXT]),
        (Split.SENTENCES, True, False, [TEXT]),
    ],
    ids=["sentences", "joined", "a request that joins", "the reference joins"],
)
def test_sentences_stay_apart_where_the_model_asks_for_it(
    split: Split, reference: bool, joined: bool, expected: list[str]
) -> None:
    assert texts(in_mode(split, reference=reference), TEXT, Reading(joined=joined)) == expected


def test_a_long_sentence_is_still_cut_to_the_limit() -> None:
    clause = "and then it went on to say the same thing again, "
    result = texts(in_mode(Split.SENTENCES), clause * 30 + "at last. Yes.", Reading())
    assert len(result) > 2
    assert (result[-1], "".join(result).count("again")) == ("Yes.", 30)
