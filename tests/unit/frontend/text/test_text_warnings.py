"""Warnings about what a model cannot speak: characters, signs, sound tags, SSML tags; and their
limits.
"""

import pytest

from services.frontend.analysis.input_text import parts_of
from services.frontend.text.characters import scripts_of, stretches
from services.frontend.text.text_warnings import (
    LONGEST_LEFT_OUT,
    MOST_LEFT_OUT,
    MOST_WARNINGS,
    Kind,
    TextWarning,
    WarningLog,
)
from tests.unit.frontend.models import DEMO, TINY, analyzer


def warned(text: str, model: str = DEMO) -> list[TextWarning]:
    reading = analyzer(model).reading("", allow_control_tokens=False, pronunciations={})
    list(parts_of(analyzer(model), text, reading))
    return reading.log.take()


def left_out(text: str, model: str = DEMO) -> list[str]:
    return [
        stretch for warning in warned(text, model) if warning.kind is Kind.UNREADABLE for stretch in warning.left_out
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Say 你好，世界 please.", ["你好，世界"]),
        ("Привет there, как дела?", ["Привет", "как дела"]),
        ("Go ⊕ there.", ["⊕"]),
        ("The ⊗ of ⊕ and ⊖.", ["⊗", "⊕", "⊖"]),
        ("Hello [laughter] there [breath].", ["[laughter]", "[breath]"]),
        ("The ⊞ applies, the ¤ too.", ["⊞", "¤"]),
    ],
)
def test_letters_signs_and_marks_that_the_model_cannot_speak(text: str, expected: list[str]) -> None:
    assert (left_out(text), left_out(text, TINY)) == (expected, [])


@pytest.mark.parametrize(
    "text",
    [
        "A plain text, with “quotes” — dashes… and naïve café Zażółć ½ ² №5 ™ ﬁne.",
        "It cost $12.50, €5 or 5 €; 50% & more @ 3+4=7, 20°C.",
        "# Title\n\n- **one** _two_ `three`\n\n| a | b |\n|---|---|\n> quote ~~gone~~",
        "👩🏽‍🚀 Rockets 🇩🇪 1️⃣ ✓ ★ ┌──┐ ● ■",
        "<b>bold</b> <strong>x</strong> <br/> &amp; &nbsp;",
        "snake_case, a|b, ~5, #tag, C:\\path {x} ^_^",
        "\u200b\u202eabc\u202c \ue000 e\u0301",
        "<|im_end|> ok",
        "[pause 300ms] hi <break time='1s'/>",
    ],
)
def test_what_is_read_and_what_is_silent_by_design_is_no_matter(text: str) -> None:
    assert warned(text) == []


def test_given_phonemes_are_read() -> None:
    reading = analyzer(DEMO).reading("", allow_control_tokens=False, pronunciations={"Nike": "/nˈIki/"})
    assert list(parts_of(analyzer(DEMO), "Nike and ʒ.", reading))
    assert [warning.left_out for warning in reading.log.take()] == [("ʒ",)]


def test_signs_that_are_whole_sentences() -> None:
    assert left_out("One. ⊕ Two. ∑", TINY) == []
    assert left_out("One here.[pause 1s]⊕[pause 1s]Two.", TINY) == ["⊕"]


@pytest.mark.parametrize("model", [DEMO, TINY])
def test_ssml_outside_a_document_is_named(model: str) -> None:
    (warning,) = warned('Hi <prosody rate="slow">there</prosody> <say-as interpret-as="date">x</say-as>.', model)
    assert (warning.kind, warning.left_out) == (Kind.UNSUPPORTED_MARKUP, ("prosody", "say-as"))


def test_a_warning_names_the_languages_of_the_model_and_no_part_of_the_text() -> None:
    (warning,) = warned("Say 你好.")
    assert warning.message == "letters or signs that this model cannot speak are left out; the model reads en"


def test_of_a_message_the_same_is_one_warning_of_bounded_size() -> None:
    log = WarningLog()
    for number in range(1000):
        log.add(Kind.UNREADABLE, "m", [f"{number} " + "x" * 100])
    (warning,) = log.take()
    assert len(warning.left_out) == MOST_LEFT_OUT
    assert {len(stretch) for stretch in warning.left_out} == {LONGEST_LEFT_OUT}
    assert log.take() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_call_has_bounded_warnings_and_the_last_one_says_so(at_once: bool) -> None:
    log, result = WarningLog(), list[TextWarning]()
    for number in range(200):
        log.add(Kind.UNREADABLE, f"m{number}", ["x"])
        result += [] if at_once else log.take()
    result += log.take()
    assert len(result) == MOST_WARNINGS
    assert [warning.kind for warning in result].count(Kind.MORE) == 1
    assert result[-1].kind is Kind.MORE
    assert result[-2].message == f"m{MOST_WARNINGS - 2}"
    exact = WarningLog()
    for number in range(MOST_WARNINGS - 1):
        exact.add(Kind.UNREADABLE, f"m{number}", ["x"])
    assert Kind.MORE not in {warning.kind for warning in exact.take()}


def test_stretches_go_on_over_marks_and_blanks() -> None:
    assert stretches("a你，好 b。世 界!", lambda place: "a你，好 b。世 界!"[place] not in "ab") == ["你，好", "世 界"]


def test_scripts_have_the_names_of_unicode() -> None:
    assert scripts_of(("你好", "Привет", "⊕5")) == ["CJK", "CYRILLIC"]
