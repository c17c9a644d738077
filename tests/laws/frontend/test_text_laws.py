"""Laws of the text path: no word is lost, in any language, however long the pieces are; and the
fragmentation of a text never changes its sentences.
"""

import functools
import itertools
import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.input_text import StreamingText
from services.frontend.normalization.english.names import technical_names
from services.frontend.normalization.markdown import without_markdown
from services.frontend.normalization.normalize import Normalizer, split_for_grammar
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.language_spans import spans
from services.frontend.segmentation.sentence_splitter import Split, Splitter, cut_to_limit
from services.frontend.segmentation.text_units import LONGEST_UNIT, Units, runs_of
from services.frontend.text.characters import speakable, without_emoji
from tests.unit.frontend.models import TINY, analyzer, tokenizer

LETTERS = st.characters(categories=["Lu", "Ll", "Lo", "Nd"]) | st.sampled_from("aeiou中文字かなкотשלוםمرحباไทย")
WORD = st.text(LETTERS, min_size=1, max_size=12) | st.text(LETTERS, min_size=200, max_size=260)
MARK = st.sampled_from([" ", ". ", ", ", "! ", "? ", "。", "，", "؟ ", " — ", "...", "; ", '." ', "\n", "：", "।"])
TEXT = st.lists(st.tuples(WORD, MARK), max_size=30).map(lambda pairs: "".join(word + mark for word, mark in pairs))
ANYTHING = st.text(st.characters() | st.sampled_from("ab1 .*_#[]()<>|`\n-😀中。$%\ud800\x00\ue000"), max_size=200)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@settings(deadline=None, max_examples=200)
@given(TEXT, st.sampled_from(["zh", "en", "de"]))
def test_split_then_joined_are_the_words_of_the_text(text: str, language: str) -> None:
    splitter = Splitter(language, len)
    assert words("".join([*splitter.feed(text), *splitter.finish()])) == words(text)


@settings(deadline=None, max_examples=100)
@given(TEXT)
def test_a_language_without_normaliser_passes_untouched(text: str) -> None:
    text = text.replace("://", "").replace("www", "w")
    sentences = list(analyzer(TINY).sentences(text, "de"))
    assert words("".join(sentence.text for sentence in sentences)) == words(speakable(text))
    assert all(len(sentence.token_ids) <= LONGEST_SENTENCE for sentence in sentences)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=9), min_size=1, max_size=60))
@example(["fstab", "mounts"])
def test_plain_english_words_are_spoken_as_they_are(plain: list[str]) -> None:
    plain = [word for word in plain if word not in {"vs", "etc", *technical_names.SPOKEN}] or ["word"]
    assert words("".join(sentence.text for sentence in analyzer(TINY).sentences(" ".join(plain), "en"))) == plain


@settings(deadline=None, max_examples=300)
@given(ANYTHING, st.sampled_from(["zh", "en"]))
def test_what_divides_a_text_gives_all_of_it(text: str, language: str) -> None:
    assert "".join(span.text for span in spans(text, language)) == text
    assert "".join(piece for _, piece in split_for_grammar(text, language)) == text


@settings(deadline=None, max_examples=300)
@given(ANYTHING)
@example("\r\x85")
@example("\r\x00\n")
@example("\x1b\x1b[31m[31m")
def test_taking_off_what_is_not_spoken_never_fails_and_is_done_once(text: str) -> None:
    clean = speakable(text)
    assert speakable(clean) == clean
    clean.encode()
    without_markdown(without_emoji(clean))


@settings(deadline=None, max_examples=100)
@given(ANYTHING, st.sampled_from(["", "zh", "en-GB", "ja"]))
def test_any_text_gives_sentences_that_the_model_can_take(text: str, language: str) -> None:
    for sentence in analyzer(TINY).sentences(text, language):
        assert 1 <= len(sentence.token_ids) <= LONGEST_SENTENCE
        sentence.text.encode()


@pytest.mark.parametrize(
    ("segment", "parts"),
    [
        ("one two, three four five", ["one two,", " three four", " five"]),
        ("aaaa, 1,000 bbbb", ["aaaa, 1,000", " bbbb"]),
        ("onetwothreefourfive", ["onetwothreef", "ourfive"]),
        ("一二三四五六七，八九十一二三", ["一二三四五六七，", "八九十一二三"]),
    ],
)
def test_a_long_piece_is_cut_at_the_next_best_place(segment: str, parts: list[str]) -> None:
    assert list(cut_to_limit(segment, 12, len)) == parts


@pytest.mark.parametrize(
    "unit",
    ["word ", "好", "1,000 ", "**a** ", "[x](y) ", "a.b.com/", "<b ", "$1 ", ". ", "\u0301\u0323", "|a", "- x\n", "5-"],
)
def test_long_monotony_of_any_kind_is_cut(unit: str) -> None:
    text = (unit * 20_000)[:4_000]
    assert all(len(sentence.token_ids) <= LONGEST_SENTENCE for sentence in analyzer(TINY).sentences(text))


MARKED_TEXT = st.text(
    st.sampled_from('ab1 .,;:!?"”’)\n中文。？！；，、Dr') | st.characters(exclude_categories=["Cs"]), max_size=120
)
PHRASES = (
    "Yes", "No", "What", "okay", "Dr. Smith", "the U.S.", "at 5 p.m.", "42 cats", "$3.50", "plan B", "Hmm", "he said",
    "今天", "很好",
    "well...", "…", '"Go!"', "(so)", "[pause 50ms]", "3", "and then,",
)  # fmt: skip
WRITTEN = st.lists(
    st.tuples(
        st.lists(st.sampled_from(PHRASES), min_size=1, max_size=5).map(" ".join),
        st.sampled_from([". ", "! ", "? ", "。", "; ", ": ", " "]),
    ),
    max_size=12,
).map(lambda parts: "".join(words + mark for words, mark in parts))
CUTS = st.lists(st.integers(0, 120), max_size=12)


@functools.cache
def plain_analyzer() -> Analyzer:
    return Analyzer(Normalizer(None), tokenizer(TINY))


def fragments(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


def units(parts: list[str], longest: int) -> list[str]:
    cutter = Units(longest)
    return [unit for part in parts for unit in cutter.feed(part)] + [cutter.finish()]


@settings(deadline=None, max_examples=300)
@given(MARKED_TEXT, CUTS, st.integers(1, 40))
def test_any_cutting_gives_the_same_units_and_loses_nothing(text: str, cuts: list[int], longest: int) -> None:
    whole = units([text], longest)
    assert units(fragments(text, cuts), longest) == whole == units(list(text), longest)
    assert "".join(whole) == text
    assert all(len(unit) <= longest for unit in whole)


@settings(deadline=None, max_examples=200)
@given(MARKED_TEXT, CUTS, st.sampled_from(["zh", "en", "de"]))
def test_the_splitter_does_not_see_run_borders(text: str, cuts: list[int], language: str) -> None:
    def split(runs: list[str]) -> list[str]:
        splitter = Splitter(language, len)
        return [segment for run in runs for segment in splitter.feed(run)] + list(splitter.finish())

    assert split(fragments(text * 3, cuts)) == split([text * 3])


@settings(deadline=None, max_examples=100)
@given(MARKED_TEXT, st.integers(1, 60))
def test_runs_are_the_text(text: str, longest: int) -> None:
    runs = list(runs_of(text, longest))
    assert "".join(runs) == text
    assert all(len(run) <= longest for run in runs)


@settings(deadline=None, max_examples=100)
@given(MARKED_TEXT, st.integers(4, 20))
def test_the_cut_to_the_limit_keeps_all(text: str, limit: int) -> None:
    parts = list(cut_to_limit(text, limit, lambda part: len(part.encode())))
    assert "".join(parts) == text
    assert all(len(part.encode()) <= limit for part in parts)


@settings(deadline=None, max_examples=200)
@given(MARKED_TEXT, st.sampled_from(["", "zh", "en", "fr"]))
def test_any_text_gives_sentences_with_ids(text: str, language: str) -> None:
    sentences = list(plain_analyzer().sentences(text, language))
    assert sentences == list(plain_analyzer().sentences(text, language))
    assert all(sentence.token_ids and sentence.text.strip() for sentence in sentences)


@functools.cache
def by_sentence() -> Analyzer:
    return Analyzer(Normalizer(WeText()), tokenizer(TINY), split=Split.SENTENCES)


@settings(deadline=None, max_examples=150)
@given(WRITTEN, CUTS, st.sampled_from(["zh", "en", "fr"]))
def test_a_whole_text_has_the_sentences_of_one_that_is_being_written(text: str, cuts: list[int], language: str) -> None:
    """For a model directory that splits by sentence, with a language code: without one, the
    language of a whole text depends on all its letters, that of a streamed text on the letters so
    far.
    """
    reading = by_sentence().reading(language, allow_control_tokens=False, pronunciations={})
    written = StreamingText(by_sentence(), reading, Units(LONGEST_UNIT), partial=False)
    streamed = [piece for fragment in fragments(text, cuts) for piece in written.feed(fragment)] + list(
        written.finish()
    )
    assert list(by_sentence().parts(text, reading)) == streamed
