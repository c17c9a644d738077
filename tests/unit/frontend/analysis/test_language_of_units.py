"""Text without letters is read in the preceding language, wherever the text is cut and whichever
call continues it.
"""

import itertools
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from services.frontend.analysis.streaming import Piece, StreamingText

from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.language_spans import language_by_script
from services.frontend.segmentation.text_units import Units

MODELS = ("models/demo", "tests/golden/tiny")
PIECES = (
    "今天",
    "很好",
    "。",
    "123。",
    " 45. ",
    "Then we left",
    "iPhone 15",
    "word ",
    "! ",
    "Привет",
    "これは",
    "[pause 50ms]",
    "😀",
    "，",
    "3 ",
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@cache
def analyzer(model: str) -> Analyzer:
    return Analyzer(Normalizer(WeText()), read_tokenizer(ModelDirectory(Path(model))))


def written(model: str, *, partial: bool, last_language: str = "", code: str = "") -> StreamingText:
    reading = analyzer(model).reading(code, allow_control_tokens=False, pronunciations={})
    return StreamingText(analyzer(model), reading, Units(400), partial=partial, last_language=last_language)


def spoken(pieces: list[Piece], *, partial: bool) -> list[object]:
    """The speech of `pieces`: parts joined to sentences."""
    if not partial:
        return list(pieces)
    joined, ids = list[object](), list[int]()
    for piece in pieces:
        ids += getattr(piece, "token_ids", ())
        if not getattr(piece, "unfinished", False):
            joined.append((tuple(ids), getattr(piece, "milliseconds", 0)))
            ids = []
    return joined


def texts(fragments: list[str], code: str = "") -> list[tuple[str, str]]:
    text = written(MODELS[1], partial=False, code=code)
    pieces = [piece for fragment in fragments for piece in text.feed(fragment)] + list(text.finish())
    return [(piece.language, piece.text.strip()) for piece in pieces if isinstance(piece, Sentence)]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("今天很好。123。再见。", [("zh", "今天很好。"), ("zh", "一百二十三。"), ("zh", "再见。")]),
        (
            "We left. 123. 今天。45。",
            [("en", "We left."), ("en", "one hundred and twenty three."), ("zh", "今天。"), ("zh", "四十五。")],
        ),
        ("我买了手机。iPhone 15。很好。", [("zh", "我买了手机。"), ("zh", "iPhone十五。"), ("zh", "很好。")]),
        ("今天。I have 3 apples. 45!", [("zh", "今天。"), ("en", "I have three apples."), ("en", "forty five!")]),
        ("Привет. 12. ", [("und", "Привет."), ("und", "12.")]),
        ("123！今天。", [("zh", "一百二十三！"), ("zh", "今天。")]),
        ("123! 今天。", [("en", "one hundred and twenty three!"), ("zh", "今天。")]),
        ("今天[pause 1s]12[pause 1s]", [("zh", "今天。"), ("zh", "十二。")]),
    ],
)
def test_digits_are_read_in_the_language_before_them(text: str, spoken: list[tuple[str, str]]) -> None:
    assert texts([text]) == spoken == texts(list(text))


def test_a_language_code_decides_alone() -> None:
    assert texts(["今天很好。123. "], code="en")[-1] == ("en", "one hundred and twenty three.")
    text = written(MODELS[1], partial=False, code="zh")
    assert list(text.feed("Hello there. x"))
    assert text.last_language == ""


def test_by_token_a_unit_without_letters_is_read_like_the_one_before() -> None:
    def ids(first: str, text: str) -> object:
        of = written(MODELS[1], partial=True)
        return spoken([*of.feed(first + text), *of.finish()], partial=True)[-1]

    assert ids("今天很好。", "123。") == (tuple("一百二十三。".encode()), 0)
    assert ids("今天很好。", "iPhone 15。") == (tuple("iPhone十五。".encode()), 0)
    assert ids("We left.", " 123.") == (tuple(b"one hundred and twenty three."), 0)
    assert ids("今天很好。", "Hello there, my 2 friends.") == (tuple(b"Hello there, my two friends."), 0)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=120)
@given(TEXT, st.lists(st.integers(0, 150), max_size=6))
@example("今天。12[pause 50ms] 45。Then we left. 3 ", [1, 4, 9])
def test_any_cutting_and_any_taking_over_give_the_same(model: str, partial: bool, text: str, cuts: list[int]) -> None:
    whole = written(model, partial=partial)
    expected = spoken([*whole.feed(text), *whole.finish()], partial=partial)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    cut = written(model, partial=partial)
    pieces = [piece for start, end in itertools.pairwise(borders) for piece in cut.feed(text[start:end])]
    assert spoken([*pieces, *cut.finish()], partial=partial) == expected
    for border in borders:
        first = written(model, partial=partial)
        # The sentences of the open unit are sent again.
        settled = spoken(list(first.feed(text[:border])), partial=partial)
        second = written(model, partial=partial, last_language=first.last_language)
        rest = spoken([*second.feed(text[first.settled :]), *second.finish()], partial=partial)
        assert settled + rest == expected


@pytest.mark.parametrize(
    ("text", "before", "language"),
    [
        ("123. 😀", "", ""),
        ("123.", "zh", "zh"),
        ("iPhone 15", "", "en"),
        ("iPhone 15", "zh", "zh"),
        ("NASA 15", "ja", "ja"),
        ("I am 15", "zh", "en"),
        ("世界 15", "en", "zh"),
        ("Привет", "zh", "und"),
    ],
)
def test_language_by_script_after_another(text: str, before: str, language: str) -> None:
    assert language_by_script(text, before) == language


def test_a_single_word_of_a_sentence_by_token_has_others_around_it() -> None:
    assert language_by_script(" Hello", "zh", whole_unit=False) == "en"
    assert language_by_script(" 15", "zh", whole_unit=False) == "zh"


def test_in_a_whole_text_what_follows_is_known() -> None:
    result = [
        part for part in analyzer(MODELS[1]).parts("12[pause 1s]今天。[pause 1s]45") if isinstance(part, Sentence)
    ]
    assert [(sentence.language, sentence.text) for sentence in result] == [
        ("zh", "十二。"),
        ("zh", "今天。"),
        ("zh", "四十五。"),
    ]
