"""Where streamed text is cut: where a sentence ends, by marks and by the text before and after
them; words that are emitted before the sentence is complete; pauses, valid and invalid,
independent of the fragmentation; and the splitter's rules and the cut to the model's limit.
"""

import itertools

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from services.frontend.segmentation.pauses import Pause, added, passages
from services.frontend.segmentation.sentence_splitter import Splitter, cut_to_limit, is_only_marks
from services.frontend.segmentation.text_units import Units, runs_of


def units_of(text: str, longest: int = 400) -> list[str]:
    units = Units(longest)
    return [*units.feed(text), units.finish()]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("One. Two", ["One.", " Two"]),
        ("pi is 3.14 or so", ["pi is 3.14 or so"]),
        ("Dr. Smith met J. Doe. Then", ["Dr. Smith met J. Doe.", " Then"]),
        ("see https://a.b/c?d=1;e now? Yes", ["see https://a.b/c?d=1;e now?", " Yes"]),
        ("Wait... what?! Go", ["Wait... what?!", " Go"]),
        ('He said "go." Then', ['He said "go."', " Then"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("他说：“走。”然后", ["他说：“走。”", "然后"]),
        ("完.好", ["完.", "好"]),
        ("", [""]),
    ],
)
def test_units(text: str, units: list[str]) -> None:
    assert units_of(text) == units


def test_an_end_waits_for_the_character_that_settles_it() -> None:
    units = Units(400)
    assert [[*units.feed(piece)] for piece in ("It costs 3.", "5 now.", " ")] == [[], [], ["It costs 3.5 now."]]
    assert units.finish() == " "


@pytest.mark.parametrize(
    ("text", "longest", "units"),
    [
        ("aaa bbb ccc", 9, ["aaa bbb", " ccc"]),
        ("一二三，四五六", 5, ["一二三，", "四五六"]),
        ("x" * 12, 5, ["xxxxx", "xxxxx", "xx"]),
    ],
)
def test_text_without_an_end_is_cut_at_a_blank_a_comma_or_anywhere(text: str, longest: int, units: list[str]) -> None:
    assert units_of(text, longest) == units


@pytest.mark.parametrize(
    ("text", "runs"), [("A b. C d. E f. G", ["A b. C d.", " E f. G"]), ("short", ["short"]), ("", [])]
)
def test_runs_join_units_up_to_the_limit(text: str, runs: list[str]) -> None:
    assert list(runs_of(text, 9)) == runs


@pytest.mark.parametrize(
    ("text", "least", "words", "rest"),
    [
        ("one two three fo", 3, "one two three ", "fo"),
        ("one two three fo", 4, "", "one two three fo"),
        ("one two three ", 3, "one two three ", ""),
        ("今天天气很好，我", 4, "今天天气很好，", "我"),
        ("今天天气很好我", 4, "", "今天天气很好我"),
        ("one two three [pause 3", 3, "one two three ", "[pause 3"),
        ("word", 1, "", "word"),
        ("", 1, "", ""),
    ],
)
def test_complete_words_leave_and_the_rest_waits(text: str, least: int, words: str, rest: str) -> None:
    units = Units(400)
    assert list(units.feed(text)) == []
    assert units.finish_words(least) == words
    assert units.waiting == rest
    assert units.finish_words(least) == "", "what was cut cannot be cut again"
    assert list(units.feed(" end. More")) == [rest + " end."]
    assert units.finish() == " More"


def sentences(text: str) -> list[str]:
    return [unit.strip() for unit in units_of(text) if unit.strip()]


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
        ("At 5 p.m. EST. At 9 a.m. May I?", ["At 5 p.m. EST.", "At 9 a.m.", "May I?"]),
        ("We met at 5 p.m. Monday was busy. I left.", ["We met at 5 p.m.", "Monday was busy.", "I left."]),
        ("The call at 5 p.m. Monday was long. It is.", ["The call at 5 p.m. Monday was long.", "It is."]),
        ("I think the call at 5 p.m. Monday was long.", ["I think the call at 5 p.m. Monday was long."]),
        (
            "It opens at 9 a.m. Sunday's off. By 9 a.m. Tuesday.",
            ["It opens at 9 a.m.", "Sunday's off.", "By 9 a.m. Tuesday."],
        ),
        ("The 6 p.m. Delta jet. At 6 p.m. Delta left.", ["The 6 p.m. Delta jet.", "At 6 p.m.", "Delta left."]),
        ("I booked the 5 p.m. John can't make 4.", ["I booked the 5 p.m.", "John can't make 4."]),
        ("You have a 10 a.m. Dr. Lee will call.", ["You have a 10 a.m.", "Dr. Lee will call."]),
        ("Take I-95 S. Then 12 N. Main St. Bye.", ["Take I-95 S.", "Then 12 N. Main St.", "Bye."]),
        ("In Reno, Calif. on Monday. In Calif. We met.", ["In Reno, Calif. on Monday.", "In Calif.", "We met."]),
        ("See vol. II. No. of items. In ch. I did.", ["See vol. II.", "No. of items.", "In ch.", "I did."]),
        ("12 Main Ave. NW. Ste. 3. Oak Ave. Then.", ["12 Main Ave. NW.", "Ste. 3.", "Oak Ave.", "Then."]),
        ("I like N.Y.C. Cool. Size M. Qty. 2.", ["I like N.Y.C.", "Cool.", "Size M.", "Qty. 2."]),
        ("Hello!How are you?Fine. a.b/c?Def!", ["Hello!", "How are you?", "Fine.", "a.b/c?Def!"]),
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
        (
            'Ugh, I forgot. "Ugh," he said, ugh, no. Ughs, too.',
            ["Ugh,", "I forgot.", '"Ugh," he said, ugh, no.', "Ughs, too."],
        ),
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
    assert [[*units.feed(piece)] for piece in ("Well..." + 39 * " ", "  ")] == [[], ["Well..."]]
    assert list(Units(400).feed("The U.S. " + 50 * "A")) == ["The U.S."]
    assert list(Units(400).feed("Go," + 41 * " " + "go! ")) == ["Go," + 41 * " " + "go!"]


PIECES = st.sampled_from(
    [
        "Hello. ",
        "world ",
        "[pause 300ms]",
        "[pause 1.5s]",
        '<break time="20ms"/>',
        "<break time='2s' />",
        "[pause ",
        "<break ",
        "[",
        "<",
        "ms]",
        "好。",
        "\n",
        "3.5 ",
    ]
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a [pause 300ms] b", ["a ", Pause(300), " b"]),
        ("[pause 1.5s]a", [Pause(1500), "a"]),
        ('a<break time="10ms"/>', ["a", Pause(10)]),
        ("a<BREAK TIME='5s' />", ["a", Pause(5000)]),
        ("[pause:20 ms][pause 30ms]", [Pause(20), Pause(30)]),
        ("[pause 3 minutes] [pause] <break/>", ["[pause 3 minutes] [pause] <break/>"]),
        ("<break time='5s\"/>", ["<break time='5s\"/>"]),
        ("", []),
    ],
)
def test_what_is_a_pause(text: str, result: list[str | Pause]) -> None:
    assert list(passages(text)) == result


@pytest.mark.parametrize(
    "tag", ["[pause 9ms]", "[pause 5001ms]", "[pause 5.001s]", '<break time="0s"/>', "[pause 999999s]"]
)
def test_a_pause_outside_the_range_is_refused(tag: str) -> None:
    with pytest.raises(InvalidRequest, match="allowed are 10 to 5000 ms"):
        list(passages(f"a {tag} b"))


def test_pauses_add_up_to_a_minute() -> None:
    waiting = 0
    for _ in range(12):
        waiting = added(waiting, Pause(5000))
    assert waiting == 60_000
    with pytest.raises(InvalidRequest, match="at most 60000 ms"):
        added(waiting, Pause(10))


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 200), max_size=10), st.integers(60, 400))
def test_no_cutting_shows_and_no_pause_is_cut(pieces: list[str], cuts: list[int], longest: int) -> None:
    text = "".join(pieces)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    def units(parts: list[str]) -> list[str]:
        cutter = Units(longest)
        return [unit for part in parts for unit in cutter.feed(part)] + [cutter.finish()]

    whole = units([text])
    assert units([text[start:end] for start, end in itertools.pairwise(borders)]) == whole == units(list(text))
    assert "".join(whole) == text
    try:
        pauses = [part for part in passages(text) if isinstance(part, Pause)]
    except InvalidRequest:  # fragments may join to a pause that is too short, which is refused as a whole
        reject()
    assert [part for unit in whole for part in passages(unit) if isinstance(part, Pause)] == pauses


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


@pytest.mark.parametrize(
    ("language", "text", "sentence"),
    [("ja", "これはペン", "これはペン。"), ("de", "Das ist gut", "Das ist gut."), ("ar", "ما هذا؟", "ما هذا؟")],
)
def test_a_pass_through_language_ends_in_its_own_stop(language: str, text: str, sentence: str) -> None:
    assert split(text, language) == [sentence]


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
