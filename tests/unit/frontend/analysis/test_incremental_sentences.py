"""Incremental ids of an unfinished sentence: final ids are emitted early, none is revoked, none
depends on the fragmentation.
"""

import itertools
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services.frontend.analysis.streaming import StreamingText

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import SentencePart
from services.frontend.analysis.prepared_text import Reading
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS, START
from services.frontend.tokenizers.tokenizer import Tokenizer

MODELS = ("models/demo", "tests/golden/tiny")
PLAIN = (
    "She said that she would read the letter to an old friend.", "I used to live near the ocean, where apples grow.",
    "The quick brown fox jumps over a lazy dog and then it rests.",
    "Don't you know the way to the house of the artist?",
)  # fmt: skip
ALPHABET = st.sampled_from([*"ab.?! ,'\n5$，。你好e\u0301👩\u200d", "the ", "Dr. ", "word ", "3.5 ", "May "])


@cache
def tokenizer(model: str) -> Tokenizer:
    return read_tokenizer(ModelDirectory(Path(model)))


@cache
def analyzer(model: str) -> Analyzer:
    return Analyzer(Normalizer(WeText()), tokenizer(model))


def pieces(model: str, fragments: list[str], reading: Reading) -> list[SentencePart | Pause]:
    text = StreamingText(analyzer(model), reading, Units(400), partial=True)
    result = [piece for fragment in fragments for piece in text.feed(fragment)] + list(text.finish())
    return [piece for piece in result if isinstance(piece, SentencePart | Pause)]


def parts(
    model: str, fragments: list[str], language: str = "", pronunciations: dict[str, str] | None = None
) -> list[SentencePart]:
    reading = analyzer(model).reading(language, allow_control_tokens=False, pronunciations=pronunciations or {})
    return [piece for piece in pieces(model, fragments, reading) if isinstance(piece, SentencePart)]


def sentences(result: list[SentencePart]) -> list[tuple[int, ...]]:
    """The ids of each sentence."""
    complete, ids = [], list[int]()
    for part in result:
        ids += part.token_ids
        if not part.unfinished:
            complete.append(tuple(ids))
            ids = []
    assert not ids, "the last sentence is never ended"
    return complete


def words(result: list[SentencePart]) -> list[list[tuple[str, int, int]]]:
    """The words of each sentence, with indices into all its ids."""
    complete, spans = [], list[tuple[str, int, int]]()
    for part in result:
        spans += part.words
        if not part.unfinished:
            complete.append(spans)
            spans = []
    return complete


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=150)
@given(
    st.lists(ALPHABET, max_size=60).map("".join),
    st.lists(st.integers(0, 200), max_size=8),
    st.sampled_from(["", "zh", "en", "de"]),
)
def test_any_cutting_gives_the_same_sentences(model: str, text: str, cuts: list[int], language: str) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    once = parts(model, [text], language)
    whole = sentences(once)
    for fragments in ([text[a:b] for a, b in itertools.pairwise(borders)], list(text)):
        cut = parts(model, fragments, language)
        assert sentences(cut) == whole
        assert words(cut) == words(once)
    assert all(0 < len(ids) <= LONGEST_SENTENCE for ids in whole)


@settings(deadline=None, max_examples=150)
@given(st.lists(ALPHABET, max_size=60).map("".join))
def test_words_cover_the_sounds_of_their_sentence_in_order(text: str) -> None:
    result = parts(MODELS[0], list(text), "en")
    silent = {tokenizer(MODELS[0]).id_of(symbol) for symbol in START + MARKS + BLANK}
    for ids, spans in zip(sentences(result), words(result), strict=True):
        covered = [place for _, first, count in spans for place in range(first, first + count)]
        assert covered == [place for place, token_id in enumerate(ids) if token_id not in silent]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_have_the_ids_and_words_of_the_whole(model: str, text: str) -> None:
    (whole,) = analyzer(model).sentences(text)
    result = parts(model, list(text))
    assert sentences(result) == [whole.token_ids]
    assert words(result) == [list(whole.words)]


def test_words_leave_with_the_ids_that_say_them() -> None:
    place = 0
    for part in parts(MODELS[0], list(PLAIN[0])):
        assert all(place <= first and first + count <= place + len(part.token_ids) for _, first, count in part.words)
        place += len(part.token_ids)


def test_a_run_of_numbers_is_cut_between_two_of_its_words() -> None:
    """No part of it may be normalised by itself, so all of it comes at once."""
    result = parts(MODELS[0], ["7 " * 150], "en")
    ids, spans = sentences(result), words(result)
    assert len(ids) > 1
    assert all(len(each) <= LONGEST_SENTENCE for each in ids)
    assert [word for each in spans for word, _, _ in each] == ["seven"] * 150
    (seven,) = {
        each[first : first + count] for each, found_in in zip(ids, spans, strict=True) for _, first, count in found_in
    }
    assert all(each[1 : 1 + len(seven)] == seven for each in ids)


def test_a_word_that_is_longer_than_a_sentence_ends_with_it() -> None:
    result = parts(MODELS[0], ["Well Nike."], "en", {"Nike": "/" + "nI" * 99 + "/"})
    assert [word for word, _, _ in words(result)[0]] == ["Well"]
    for ids, spans in zip(sentences(result), words(result), strict=True):
        assert all(first + count <= len(ids) for _, first, count in spans)


@pytest.mark.parametrize(("model", "behind"), [(MODELS[0], 3), (MODELS[1], 1)])
def test_a_word_is_emitted_when_the_following_words_decide_it(model: str, behind: int) -> None:
    """BPE: the next word. Phonemes: the next word, and two that may change its pronunciation."""
    words = ["seven", "little", "ducks", "swim", "over", "there"]
    text = StreamingText(analyzer(model), Reading("en"), Units(400), partial=True)
    spans = [bool(list(text.feed(word + " "))) for word in words]
    assert spans == [place >= behind for place in range(len(words))]


def test_numbers_wait_for_their_neighbours_and_are_spoken() -> None:
    model = MODELS[0]
    (whole,) = analyzer(model).sentences("We paid $5 million for it in May 2024, you know.")
    assert sentences(parts(model, list("We paid $5 million for it in May 2024, you know."))) == [whole.token_ids]


@pytest.mark.parametrize("model", MODELS)
def test_a_sentence_without_end_is_ended_at_the_models_limit(model: str) -> None:
    result = sentences(parts(model, ["extraordinary " * 28 + "x" * 300]))
    assert len(result) > 1
    assert all(len(ids) <= LONGEST_SENTENCE for ids in result)


@pytest.mark.parametrize("text", ["", " ", "...", "👩‍👩‍👧 !"])
def test_nothing_to_speak_is_no_sentence(text: str) -> None:
    assert parts(MODELS[0], [text]) == []


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_pause_comes_between_the_sentences_around_it(size: int) -> None:
    text = "[pause 1s] We went home[pause 300ms]and then <break time='0.2s'/> we slept. Good [pause 20ms]"
    result = pieces(MODELS[0], [text[at : at + size] for at in range(0, len(text), size)], Reading("en"))
    pauses = [
        piece.milliseconds if isinstance(piece, Pause) else 0
        for piece in result
        if isinstance(piece, Pause) or not piece.unfinished
    ]
    assert pauses == [1000, 0, 300, 0, 200, 0, 0, 20]
    words = ("We went home", "and then", "we slept.", "Good")
    assert sentences([piece for piece in result if isinstance(piece, SentencePart)]) == [
        sentence.token_ids for text in words for sentence in analyzer(MODELS[0]).sentences(text, "en")
    ]


@pytest.mark.parametrize("written", ["Take", "New York", "new york city", "old New York City"])
def test_a_pronunciation_is_found_over_the_words_that_it_spans(written: str) -> None:
    text = "Take a Nike to old New York City and to New Jersey today."
    given = {written: "/nˈIki/"}
    reading = analyzer(MODELS[0]).reading("en", allow_control_tokens=False, pronunciations=given)
    (whole,) = analyzer(MODELS[0]).sentences(text, "en", reading)
    assert whole.token_ids != next(analyzer(MODELS[0]).sentences(text, "en")).token_ids
    assert sentences(parts(MODELS[0], list(text), "en", given)) == [whole.token_ids]


def test_the_address_of_a_link_is_not_spoken() -> None:
    text = "Please read the [page about little ducks](https://example.org/x) before you go there."
    (whole,) = analyzer(MODELS[0]).sentences(text, "en")
    assert sentences(parts(MODELS[0], list(text), "en")) == [whole.token_ids]
