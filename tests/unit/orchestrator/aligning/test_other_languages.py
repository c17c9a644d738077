"""Sentences in other languages have no times of an English aligner."""

from pathlib import Path

import pytest

from services.orchestrator.aligning.late_words import is_another_language

LISTS = Path(__file__).parents[4] / "tools" / "quality"


@pytest.mark.parametrize(
    "text",
    [
        "Mein Vater hat ein Haus in Hamburg und fährt mit dem Zug.",
        "Ich bin heute nicht zu Hause.",
        "Le train pour Paris est dans la gare.",
        "Je ne sais pas où vous êtes.",
        "El tren para Madrid sale por la tarde.",
        "Hoy es un día muy bonito.",
        "Il treno per Roma non è in ritardo, che fortuna!",
        "Ho una casa che è molto grande.",
        "Eu não sei onde você está.",
        "Ik weet het niet van tevoren.",
    ],
)
def test_frequent_words_give_it_away(text: str) -> None:
    assert is_another_language(text.split())


@pytest.mark.parametrize("name", ["sentences.txt", "replies.txt"])
def test_no_english_line_of_the_lists_is_taken_for_another_language(name: str) -> None:
    lines = (LISTS / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 200
    assert [line for line in lines if is_another_language(line.split())] == []
