"""The splitter's rules and the cut to the model's limit."""

import pytest

from services.frontend.segmentation.sentence_splitter import Splitter, cut_to_limit, is_only_marks


def split(text: str, language: str = "zh") -> list[str]:
    splitter = Splitter(language, len)
    return [*splitter.feed(text), *splitter.finish()]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("你好", ["你好。"]),
        ("...", []),
        ("", []),
        ("你好。。。", ["你好。"]),
        ("他说“走吧。”然后", ["他说“走吧。”然后。"]),
        ("。”你好", ["你好。"]),
        ("好。。”完", ["好。”完。"]),
        ("一" * 100, ["一" * 100 + "。"]),
    ],
)
def test_chinese(text: str, segments: list[str]) -> None:
    assert split(text) == segments


def test_segments_have_60_to_80_units_and_a_short_rest_is_glued() -> None:
    sentence = "一二三四五六七八九。"
    assert [len(segment) for segment in split(sentence * 12)] == [80, 40]
    assert [len(segment) for segment in split(sentence * 9)] == [90]
    assert "".join(split(sentence * 12)) == sentence * 12


class Looked:
    """Terminators that count lookups."""

    def __init__(self, terminators: str) -> None:
        self.terminators, self.times = terminators, 0

    def __contains__(self, character: str) -> bool:
        self.times += 1
        return character in self.terminators


@pytest.mark.parametrize(("unit", "most_measured"), [("word ", 1), ("a. ", 3), ("。", 1), ('"', 1)])
@pytest.mark.parametrize("size", [1, 50, 20_000])
def test_each_character_is_looked_at_once_however_the_text_comes(unit: str, most_measured: int, size: int) -> None:
    text, measured = (unit * 20_000)[:20_000], 0

    def length(segment: str) -> int:
        nonlocal measured
        measured += 1
        return len(segment)

    splitter = Splitter("en", length)
    looked = splitter._terminators = Looked(".?!;:")  # type: ignore[assignment]
    segments = [segment for at in range(0, len(text), size) for segment in splitter.feed(text[at : at + size])]
    segments += splitter.finish()
    assert "".join(segments).startswith(text.rstrip())
    assert looked.times <= len(text) + 2
    # Once for each piece, and once more where a segment ends.
    assert measured <= most_measured * (text.count(".") + 2)


def test_a_pass_through_language_ends_in_its_own_stop() -> None:
    assert split("これはペン", "ja") == ["これはペン。"]
    assert split("Das ist gut", "de") == ["Das ist gut."]
    assert split("ما هذا؟", "ar") == ["ما هذا؟"]


@pytest.mark.parametrize(
    ("segment", "reference", "served"),
    [
        ("，。！", True, True),
        (" . ", False, True),
        ("😀", True, True),
        ("👨\u200d👩", False, True),
        ("a.", False, False),
        ("", True, True),
    ],
)
def test_only_marks(segment: str, reference: bool, served: bool) -> None:
    assert is_only_marks(segment, reference=True) == reference
    assert is_only_marks(segment) == served


@pytest.mark.parametrize("text", ["word " * 500, "x" * 2500, "short", "a" * 700 + " " + "b" * 1999])
def test_the_cut_keeps_every_character_and_the_limit(text: str) -> None:
    def tokens(part: str) -> int:
        return 2 * len(part)

    parts = list(cut_to_limit(text, 1000, tokens))
    assert "".join(parts) == text
    assert all(0 < tokens(part) <= 1000 for part in parts)


def test_the_cut_prefers_a_blank() -> None:
    assert list(cut_to_limit("aaaa bbbb cccc", 11, len)) == ["aaaa bbbb", " cccc"]


def test_a_cut_goes_back_to_a_blank_that_fits_rather_than_through_a_word() -> None:
    def tokens(text: str) -> int:
        return len(text) + 5 * text.endswith("to")

    assert list(cut_to_limit("aaaa to bbbb", 9, tokens)) == ["aaaa", " to bbbb"]
