"""Ids of a sentence that is being written: certain ones leave early, none is taken back, none depends on the cutting."""

import itertools
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis import Analyzer
from services.frontend.normalize import Normalizer
from services.frontend.partial import Part
from services.frontend.text_tokenizer import Tokenizer, read_tokenizer
from services.frontend.units import Units
from services.frontend.wetext_package import WeText
from services.frontend.written_text import WrittenText

MODELS = ("models/demo", "tests/golden/tiny")
PLAIN = (
    "She said that she would read the letter to an old friend.", "I used to live near the ocean, where apples grow.",
    "The quick brown fox jumps over a lazy dog and then it rests.", "Don't you know the way to the house of the artist?",
)  # fmt: skip
ALPHABET = st.sampled_from([*"ab.?! ,'\n5$，。你好e\u0301👩\u200d", "the ", "Dr. ", "word ", "3.5 ", "May "])


@cache
def tokenizer(model: str) -> Tokenizer:
    return read_tokenizer(ModelDirectory(Path(model)))


@cache
def analyzer(model: str) -> Analyzer:
    return Analyzer(Normalizer(WeText()), tokenizer(model))


def parts(model: str, fragments: list[str], language: str = "") -> list[Part]:
    text = WrittenText(analyzer(model), language, Units(400), partial=True)
    found = [piece for fragment in fragments for piece in text.feed(fragment)] + list(text.finish())
    return [piece for piece in found if isinstance(piece, Part)]


def sentences(found: list[Part]) -> list[tuple[int, ...]]:
    """The ids of each sentence."""
    complete, ids = [], list[int]()
    for part in found:
        ids += part.token_ids
        if not part.unfinished:
            complete.append(tuple(ids))
            ids = []
    assert not ids, "the last sentence is never ended"
    return complete


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=150)
@given(st.lists(ALPHABET, max_size=60).map("".join), st.lists(st.integers(0, 200), max_size=8), st.sampled_from(["", "zh", "en", "de"]))
def test_any_cutting_gives_the_same_sentences(model: str, text: str, cuts: list[int], language: str) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    whole = sentences(parts(model, [text], language))
    assert sentences(parts(model, [text[a:b] for a, b in itertools.pairwise(borders)], language)) == whole
    assert sentences(parts(model, list(text), language)) == whole
    assert all(0 < len(ids) <= LONGEST_SENTENCE for ids in whole)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_have_the_ids_of_the_whole(model: str, text: str) -> None:
    (whole,) = analyzer(model).sentences(text)
    assert sentences(parts(model, list(text))) == [whole.token_ids]


@pytest.mark.parametrize(("model", "behind"), [(MODELS[0], 3), (MODELS[1], 1)])
def test_a_word_leaves_when_the_words_behind_it_settle_it(model: str, behind: int) -> None:
    """BPE: the next word. Phonemes: the next word, and two that may change how it sounds."""
    words = ["seven", "little", "ducks", "swim", "over", "there"]
    text = WrittenText(analyzer(model), "en", Units(400), partial=True)
    told = [bool(list(text.feed(word + " "))) for word in words]
    assert told == [place >= behind for place in range(len(words))]


def test_numbers_wait_for_their_neighbours_and_are_spoken() -> None:
    model = MODELS[0]
    (whole,) = analyzer(model).sentences("We paid $5 million for it in May 2024, you know.")
    assert sentences(parts(model, list("We paid $5 million for it in May 2024, you know."))) == [whole.token_ids]


@pytest.mark.parametrize("model", MODELS)
def test_a_sentence_without_end_is_ended_at_the_models_limit(model: str) -> None:
    found = sentences(parts(model, ["extraordinary " * 28 + "x" * 300]))
    assert len(found) > 1
    assert all(len(ids) <= LONGEST_SENTENCE for ids in found)


@pytest.mark.parametrize("text", ["", " ", "...", "👩‍👩‍👧 !"])
def test_nothing_to_speak_is_no_sentence(text: str) -> None:
    assert parts(MODELS[0], [text]) == []
