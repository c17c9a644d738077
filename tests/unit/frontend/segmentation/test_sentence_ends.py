"""Where a sentence ends: by marks, and by the text before and after them."""

import pytest

from services.frontend.segmentation.text_units import Units, units_of


def sentences(text: str) -> list[str]:
    return [unit.strip() for unit in units_of(text, 400) if unit.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hmm, uh, well... okay.", ["Hmm, uh, well... okay."]),
        ("Wait… What? No… no.", ["Wait…", "What?", "No… no."]),
        ("Well... Okay.", ["Well...", "Okay."]),
        ("我想……还是算了吧。好。", ["我想……还是算了吧。", "好。"]),
        ('"Really?" she asked. "Yes!" He left.', ['"Really?" she asked.', '"Yes!"', "He left."]),
        ("(Not now.) he said", ["(Not now.) he said"]),
        ("We came; we saw; we won. Good.", ["We came; we saw; we won.", "Good."]),
        ("First: this. Then: that.", ["First: this.", "Then: that."]),
        ("No. I mean it. No. 5 is gone. No.", ["No.", "I mean it.", "No. 5 is gone.", "No."]),
        ("It's gate C. Not gate D. See J. Doe. Bye.", ["It's gate C.", "Not gate D.", "See J. Doe.", "Bye."]),
        ("So do I. Then go. I. Newton did.", ["So do I.", "Then go.", "I. Newton did."]),
        ("At 5 p.m. today. At 5 p.m. We met.", ["At 5 p.m. today.", "At 5 p.m.", "We met."]),
        ("In the U.S. Army. In the U.S. Then we left.", ["In the U.S. Army.", "In the U.S.", "Then we left."]),
        ("Cats, etc. and dogs, etc. Then birds.", ["Cats, etc. and dogs, etc.", "Then birds."]),
        ("It costs 3.14 now. See a.b/c?d=1 there!", ["It costs 3.14 now.", "See a.b/c?d=1 there!"]),
        ("Ask Dr. Green. She knows.", ["Ask Dr. Green.", "She knows."]),
        (
            "It took approx. 5 min. 3 people came. Max. 10. Max. Then go.",
            ["It took approx. 5 min.", "3 people came.", "Max. 10.", "Max.", "Then go."],
        ),
        ("He is 6 ft. 2 in. tall. It has 5 ft. Then 2.", ["He is 6 ft. 2 in. tall.", "It has 5 ft.", "Then 2."]),
        ("Open Mon. to Fri. only. Closed Sun. Then open.", ["Open Mon. to Fri. only.", "Closed Sun.", "Then open."]),
        ("I came in. 5 of us sat. 2 stood.", ["I came in.", "5 of us sat.", "2 stood."]),
        ("Well, well-known. So, so. That, that's it.", ["Well, well-known.", "So,", "so.", "That, that's it."]),
        ("Yes!!! Go!? Why??", ["Yes!!!", "Go!?", "Why??"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected
    fed = Units(400)
    assert [unit.strip() for part in text for unit in fed.feed(part)] + [fed.finish().strip()] == expected


def test_a_long_clause_ends_at_its_semicolon() -> None:
    first = "I have looked at every one of the files that you sent me today;"
    assert sentences(f"{first} none of them has it.") == [first, "none of them has it."]


def test_ordinary_ends_wait_for_one_character_only() -> None:
    for text in ("Hello! ", "It is late. ", "Why? "):
        assert list(Units(400).feed(text)) == [text[:-1]]


def test_what_is_waited_for_is_bounded() -> None:
    units = Units(400)
    assert list(units.feed("Well..." + 39 * " ")) == []
    assert list(units.feed("  ")) == ["Well..."]
    assert list(Units(400).feed("The U.S. " + 50 * "A")) == ["The U.S."]
    again = Units(400)
    assert list(again.feed("Go," + 41 * " " + "go! ")) == ["Go," + 41 * " " + "go!"]
