"""Laws of a caller's limit of sentence length: no sentence is longer, no word is lost, how the text
arrives does not matter, and a limit that no sentence reaches changes nothing.
"""

import functools
import itertools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import StreamingText, parts_of
from services.frontend.normalization.normalize import Normalizer
from services.frontend.segmentation.caller_limit import MOST, cut_evenly
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.sentence_splitter import Split
from services.frontend.segmentation.text_units import LONGEST_UNIT, Units
from tests.unit.frontend.models import TINY, tokenizer

WORDS = ("one", "another", "sentence", "extraordinarily", "a", "今天天气很好", "我们", "word-for-word", "don't")
MARKS = (" ", " ", " ", ", ", "; ", ". ", "! ", "，", "。", " — ", "？")
TEXT = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(MARKS)), min_size=1, max_size=40).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)
LIMIT = st.integers(10, 120)
LANGUAGE = st.sampled_from(["zh", "en", "fr"])


@functools.cache
def analyzer(split: Split) -> Analyzer:
    return Analyzer(Normalizer(None), tokenizer(TINY), split=split)


def sentences(text: str, limit: int, language: str, split: Split) -> list[Sentence]:
    reading = analyzer(split).reading(language, allow_control_tokens=False, pronunciations={}, most_characters=limit)
    found = list(parts_of(analyzer(split), text, reading))
    assert not any(isinstance(piece, Pause) for piece in found)
    return found  # type: ignore[return-value]


def letters(found: list[Sentence]) -> str:
    return re.sub(r"\W", "", "".join(sentence.text for sentence in found))


@settings(deadline=None, max_examples=200)
@given(TEXT, LIMIT, LANGUAGE, st.sampled_from(Split))
def test_no_sentence_is_longer_and_no_word_is_lost(text: str, limit: int, language: str, split: Split) -> None:
    limited = sentences(text, limit, language, split)
    assert all(1 <= len(sentence.text) <= limit for sentence in limited)
    assert all(sentence.token_ids for sentence in limited)
    assert letters(limited) == letters(sentences(text, 0, language, split))


@settings(deadline=None, max_examples=100)
@given(TEXT, LANGUAGE, st.sampled_from(Split))
@example("one " * 9 + "extraordinarily " * 3 + "今天天气很好 " * 9, "en", Split.JOINED)
def test_a_limit_that_no_sentence_reaches_changes_nothing(text: str, language: str, split: Split) -> None:
    assert sentences(text, MOST, language, split) == sentences(text, 0, language, split)


@settings(deadline=None, max_examples=100)
@given(TEXT, LIMIT, LANGUAGE, st.lists(st.integers(0, 300), max_size=12))
def test_how_the_text_arrives_does_not_matter(text: str, limit: int, language: str, cuts: list[int]) -> None:
    reading = analyzer(Split.SENTENCES).reading(
        language, allow_control_tokens=False, pronunciations={}, most_characters=limit
    )
    written = StreamingText(analyzer(Split.SENTENCES), reading, Units(LONGEST_UNIT), partial=False)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(borders)]
    streamed = [found for piece in pieces for found in written.feed(piece)] + list(written.finish())
    assert streamed == sentences(text, limit, language, Split.SENTENCES)


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("ab ,;，。1\u0301中"), max_size=300), st.integers(10, 40))
def test_a_cut_keeps_all(text: str, limit: int) -> None:
    parts = list(cut_evenly(text, limit))
    assert "".join(parts) == text
    assert all(len(part) <= limit for part in parts)


def test_no_limit_is_no_cut() -> None:
    assert list(cut_evenly("a, b" * 9_000, 0)) == ["a, b" * 9_000]


@pytest.mark.parametrize(
    ("segment", "parts"),
    [
        ("one two, three four five", ["one two,", " three", " four five"]),
        (
            "It was late when we, that is all of us, arrived.",
            ["It was late", " when we,", " that is", " all of us,", " arrived."],
        ),
        ("aaaa 1,000 bbbb", ["aaaa 1,000", " bbbb"]),
        ("onetwothreefourfive", ["onetwothre", "efourfive"]),
        ("一二三四五六七，八九十一二三", ["一二三四五六七，", "八九十一二三"]),
    ],
)
def test_a_cut_is_at_a_clause_or_a_blank_and_leaves_no_crumbs(segment: str, parts: list[str]) -> None:
    assert list(cut_evenly(segment, 12)) == parts


@pytest.mark.parametrize("split", Split)
def test_parts_of_one_sentence_continue_each_other(split: Split) -> None:
    text = "We walked along the river, talked about old times, and came home late. It rained."
    found = sentences(text, 40, "en", split)
    assert [sentence.text.strip() for sentence in found] == [
        "We walked along the river,",
        "talked about old times,",
        "and came home late.",
        "It rained.",
    ]
    assert [sentence.continues for sentence in found] == [False, True, True, False]


def test_joined_sentences_fit_the_limit_whole() -> None:
    """A sentence that fits is not cut because it was joined to another one."""
    text = "First comes one. Then comes two. At last comes three."
    assert [sentence.text.strip() for sentence in sentences(text, 34, "en", Split.JOINED)] == [
        "First comes one. Then comes two.",
        "At last comes three.",
    ]


@pytest.mark.parametrize("split", Split)
def test_a_document_is_limited_as_well(split: Split) -> None:
    spoken = "We walked along the river, talked about old times, and came <prosody rate='120%'>home</prosody>."
    found = sentences(f"<speak>{spoken}</speak>", 40, "en", split)
    assert [(sentence.text.strip(), sentence.rate, sentence.continues) for sentence in found] == [
        ("We walked along the river,", 1.0, False),
        ("talked about old times, and came.", 1.0, True),
        ("home.", 1.2, True),
    ]
