"""The reader of SSML documents: the meaning of elements, errors with their positions, independent
of the fragmentation; and how a document is detected.
"""

import itertools
import time
from collections.abc import Iterable
from typing import Any

import pytest

from cosyserve.errors import InvalidRequest
from services.frontend.segmentation.pauses import Pause
from services.frontend.ssml.elements import LONGEST_DOCUMENT
from services.frontend.ssml.events import Boundary, Event, Notice, SpokenText, Style
from services.frontend.ssml.reader import Reader, begins_document, is_document, without_declaration
from services.frontend.ssml.replacements import Inserted, Phonemes
from services.frontend.ssml.say_as.values import Value
from services.frontend.text.text_warnings import Kind
from services.frontend.tokenizers.phonemes.symbols import is_pronunciation


def read_parts(
    fragments: Iterable[str], *, speed: float = 1.0, phonemes: bool = True
) -> tuple[list[Event], list[Inserted], str]:
    """Events with adjacent text merged, the inserted items, and the refusal."""
    reader, result, refusal = Reader(speed, is_pronunciation if phonemes else None), list[Event](), ""
    try:
        for fragment in fragments:
            result.extend(reader.feed(fragment))
        result.extend(reader.finish())
    except InvalidRequest as error:
        refusal = error.message
    joined = list[Event]()
    for said, group in itertools.groupby(result, lambda event: isinstance(event, SpokenText)):
        events = list(group)
        joined += [SpokenText(text_of(events))] if said else events
    return joined, reader.inserted, refusal


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, SpokenText))


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def read(document: str, step: int = 0, **how: Any) -> tuple[list[Event], list[Inserted], str]:
    """As `read_parts`, of a document in fragments of `step` characters; 0: as a whole."""
    return read_parts(pieces(document, step or len(document)), **how)


def refused(document: str, **how: Any) -> str:
    return read(document, **how)[2]


def test_text_pauses_and_borders_in_order() -> None:
    events, _, refusal = read('<speak>A &amp; B<break time="1.5s"/><p>C</p><prosody rate="slow">D</prosody>E</speak>')
    slow = Style(0.75)
    assert events == [
        SpokenText("A & B"),
        Pause(1500),
        Boundary(Style(), False),
        SpokenText("C"),
        Boundary(Style(), False),
        Boundary(slow, True),
        SpokenText("D"),
        Boundary(Style(), True),
        SpokenText("E"),
    ]
    assert refusal == ""


def test_what_does_not_change_the_style_is_no_border() -> None:
    document = '<speak><prosody rate="medium">A</prosody> <prosody>B</prosody><emphasis>C</emphasis></speak>'
    assert [event for event in read(document)[0] if isinstance(event, Boundary)] == []


@pytest.mark.parametrize(
    ("outer", "inner", "rate"),
    [
        ("slow", "100%", 0.75), ("120%", "1.5", 1.8), ("+20%", "-50%", 0.6), ("x-slow", "fast", 0.625),
        ("default", "x-fast", 1.5),
        (" FAST ", "1", 1.25), ("2", "0.5", 1.0),
    ],
)  # fmt: skip
def test_rates_multiply(outer: str, inner: str, rate: float) -> None:
    events = read(f'<speak><prosody rate="{outer}"><prosody rate="{inner}">A</prosody></prosody></speak>')[0]
    inside = [event for event, behind in itertools.pairwise(events) if isinstance(behind, SpokenText)]
    assert isinstance(inside[-1], Boundary)
    assert inside[-1].style.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("attributes", "milliseconds"),
    [
        ('time="300ms"', 300), ('time="0.01s"', 10), ('time="5s" strength="weak"', 5000), ("", 400),
        ('strength="x-weak"', 100),
        ('strength="x-strong"', 1200), ('time="+2.5S"', 2500), ('strength="none"', 0),
    ],
)  # fmt: skip
def test_breaks(attributes: str, milliseconds: int) -> None:
    pauses = [Pause(milliseconds)] if milliseconds else []
    assert read(f"<speak>A<break {attributes}/></speak>")[0] == [SpokenText("A"), *pauses]


def test_languages_hold_inside_their_elements() -> None:
    events = read('<speak xml:lang="en"><s xml:lang="zh-CN">A</s><lang xml:lang="de">B</lang>C</speak>')[0]
    spoken, language = [], ""
    for event in events:
        language = event.style.language if isinstance(event, Boundary) else language
        spoken += [(event.text, language)] if isinstance(event, SpokenText) else []
    assert spoken == [("A", "zh-CN"), ("B", "de"), ("C", "en")]


def test_what_is_said_instead_of_text() -> None:
    events, inserted, _ = read(
        '<speak><sub alias="World Wide">W3</sub><say-as interpret-as="ordinal">2</say-as>'
        '<phoneme alphabet="ipa" ph="ˈnaɪki">Nike</phoneme><phoneme alphabet="misaki" ph="/nˈIki wˈʌn/"/></speak>'
    )
    assert events == [SpokenText("World Wide\U00100000\U00100001\U00100002")]
    assert inserted == [Value("ordinal", ("2",), "2"), Phonemes("nˈIki"), Phonemes("nˈIki wˈʌn")]


def test_other_tags_are_named_once_and_their_text_is_read() -> None:
    events = read(
        '<speak><emphasis level="strong">A</emphasis><emphasis>B</emphasis><prosody pitch="high" '
        'volume="loud">C</prosody>'
        '<voice name="x">D</voice><audio src="y">E<desc>F</desc></audio><mark name="z"/><b>G</b></speak>'
    )[0]
    assert text_of(events) == "ABCDEG"
    named = [name for event in events if isinstance(event, Notice) for name in event.left_out]
    assert named == ["emphasis", "prosody pitch", "prosody volume", "voice", "audio", "desc", "mark", "b"]
    assert {event.kind for event in events if isinstance(event, Notice)} == {Kind.UNSUPPORTED_MARKUP}


def test_metadata_is_no_part_of_the_text() -> None:
    assert read("<speak><metadata>a<b>c</b><p>d</p></metadata>e</speak>")[0][-1:] == [SpokenText("e")]


@pytest.mark.parametrize("alphabet", ["x-sampa", "arpabet"])
def test_phonemes_of_no_use_leave_the_text(alphabet: str) -> None:
    *notices, said = read(f'<speak><phoneme alphabet="{alphabet}" ph="n">Nike</phoneme></speak>')[0]
    assert said == SpokenText("Nike")
    assert [notice.kind for notice in notices if isinstance(notice, Notice)] == [Kind.UNUSABLE_PRONUNCIATION]


def test_a_model_that_reads_text_reads_the_text() -> None:
    notice, said = read('<speak><phoneme alphabet="ipa" ph="ˈnaɪki">Nike</phoneme></speak>', phonemes=False)[0]
    assert said == SpokenText("Nike")
    assert isinstance(notice, Notice)
    assert notice.left_out == ("ˈnaɪki",)


@pytest.mark.parametrize(
    ("inside", "refusal"),
    [
        ('A\n <break time="9ms"/>', "SSML, line 2, column 2: break: time is 9 ms, allowed are 10 to 5000 ms"),
        (
            '<break time="2 s"/>',
            "SSML, line 1, column 8: break: time is '2 s', expected 10ms to 5000ms, such as 300ms or 1.5s",
        ),
        (
            '<break strength="big"/>',
            "SSML, line 1, column 8: break: strength is 'big', expected one of none, x-weak, weak, medium, strong, "
            "x-strong",
        ),
        (
            'A<prosody rate="quick">',
            "SSML, line 1, column 9: prosody: 'quick', expected one of x-slow, slow, medium, default, fast, x-fast, a "
            "factor such as 1.2, "
            "or a percentage such as 120% or +20%",
        ),
        (
            '<prosody rate="3">',
            "SSML, line 1, column 8: prosody: rate 3 times speed 1 of the request is 3, allowed are 0.5 to 2",
        ),
        (
            '<prosody rate="-60%">',
            "SSML, line 1, column 8: prosody: rate 0.4 times speed 1 of the request is 0.4, allowed are 0.5 to 2",
        ),
        (
            '<lang xml:lang="e_n">',
            'SSML, line 1, column 8: lang: xml:lang is \'e_n\'; expected a BCP-47 tag such as "en-US" or "zh", or '
            "nothing",
        ),
        ("<lang>", "SSML, line 1, column 8: lang: xml:lang is missing"),
        ("<sub>", "SSML, line 1, column 8: sub: alias is missing or empty"),
        ('<say-as interpret-as=" ">', "SSML, line 1, column 8: say-as: interpret-as is missing or empty"),
        (
            '<sub alias="a">b<break/></sub>',
            "SSML, line 1, column 24: break is inside sub, which may contain text only",
        ),
        ("<speak>", "SSML, line 1, column 8: speak is inside speak"),
        ("<![CDATA[a]]>", "SSML, line 1, column 8: a CDATA section is not allowed; write &lt; and &amp;"),
        ("&nbsp;", "SSML, line 1, column 8: undefined entity"),
        ("a & b", "SSML, line 1, column 11: not well-formed (invalid token)"),
        ("<p></s>", "SSML, line 1, column 13: mismatched tag"),
        ("<b>" * 40, "SSML, line 1, column 101: elements are nested over 32 deep"),
        (f'<sub alias="{"x" * 201}">', "SSML, line 1, column 8: sub: alias has 201 characters, allowed are 1 to 200"),
        (
            f'<sub alias="a">{"x" * 201}</sub>',
            "SSML, line 1, column 8: sub: it holds 201 characters of text, allowed are at most 200",
        ),
        ("a\x00b", "SSML, line 1, column 9: not well-formed (invalid token)"),
        (
            '<phoneme ph="n☃"/>',
            "SSML, line 1, column 8: phoneme: '☃' (U+2603) is no symbol of English in IPA",
        ),
        (
            '<phoneme alphabet="misaki" ph="/eQq/"/>',
            "SSML, line 1, column 8: phoneme: ph is '/eQq/', of which 'eQq' is no word in phonemes of this model",
        ),
    ],
)
def test_what_is_wrong_is_said_and_where(inside: str, refusal: str) -> None:
    assert refused(f"<speak>{inside}</speak>") == refusal


BOMB = '<!DOCTYPE speak [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><speak>&b;</speak>'


@pytest.mark.parametrize(
    ("document", "refusal"),
    [
        ("<speak>A", "SSML, line 1, column 9: no element found"),
        ("<speak>A</speak> B", "SSML, line 1, column 18: junk after document element"),
        ("<speak>A</speak> \n ", ""),
        # No document type, and so no entities.
        (BOMB, "SSML, line 1, column 17: a document type declaration is not allowed"),
        (
            '<!DOCTYPE speak SYSTEM "file:///etc/passwd"><speak>a</speak>',
            "SSML, line 1, column 44: a document type declaration is not allowed",
        ),
    ],
)
def test_what_is_wrong_with_the_whole_is_said(document: str, refusal: str) -> None:
    assert refused(document) == refusal


def test_the_rate_is_checked_together_with_the_speed_of_the_request() -> None:
    document = '<speak><prosody rate="x-slow">A</prosody></speak>'
    assert refused(document, speed=1.5) == ""
    assert "rate 0.5 times speed 0.9 of the request is 0.45" in refused(document, speed=0.9)


def test_a_caller_cannot_write_a_placeholder() -> None:
    events, inserted, _ = read("<speak>a\U00100000b&#xF0000;c&#x100001;<sub alias='d\U00100000'>x</sub></speak>")
    assert (events, inserted) == ([SpokenText("abcd")], [])


def test_sizes_have_bounds_and_time_grows_with_the_length() -> None:
    assert "over 20000 characters" in refused("<speak>" + "a" * LONGEST_DOCUMENT)
    begin = time.process_time()
    # An endless tag, letter by letter: each letter makes the parser scan it from its start.
    assert "a tag, comment or reference has over 4000 characters" in refused("<speak><a" + " " * 19_000, step=1)
    assert "elements are nested" in refused("<speak>" + "<b>" * 6_000, step=1)
    assert refused("<speak>" + "<b>a</b>" * 2_400 + "</speak>", step=1) == ""
    assert time.process_time() - begin < 3


DOCUMENTS = (
    '<?xml version="1.0" encoding="utf-16"?>\n<speak version="1.1">A &amp; b.\r\n'
    "<break/>é你好 <s>C &#x4f60;</s></speak>",
    '<speak>A<sub alias="x">b</sub><say-as interpret-as="date">2024-05-01</say-as> '
    "<!-- c --><emphasis>d</emphasis></speak>",
    '<speak>One. <break time="9ms"/> two</speak>',
    "<speak>One &foo; two</speak>",
    '<speak><prosody rate="0.2">x',
    "<speak>" + "<b>" * 40,
)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("step", [1, 2, 7])
def test_the_cutting_does_not_show(document: str, step: int) -> None:
    # The beginning comes in one piece: it is held until the form of the text is known.
    head = document.index("<speak") + 7
    assert read_parts([document[:head], *pieces(document[head:], step)]) == read(document)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", None), (" \n", None), ("<", None), ("<spea", None), ("<speak", None), ("<speak>", True),
        ("\ufeff <speak a", True),
        ("<speak/>", True), ("<speaker>", False), ("a <speak>", False), ("<?xml versi", None),
        ("<?xml version='1.0'?> <speak>", True),
        ("<?php", False), ("<!DOCTYPE speak>", True), ("<!DOCTYPE html>", False), (" " * 401, False),
        ("[pause 1s]<speak>", False),
        ("<b>", False), ("<break time='1s'/>", False), (BOMB, True),
    ],
)  # fmt: skip
def test_a_document_is_known_by_its_beginning(text: str, known: bool | None) -> None:
    assert begins_document(text) is known
    assert is_document(text) is (known is True)


def test_places_in_a_document_stay_what_they_are_without_its_declaration() -> None:
    text = "\ufeff\n<?xml version='1.0'\n?> <speak>"
    assert without_declaration(text) == " \n" + " " * 19 + "\n" + " " * 3 + "<speak>"
    assert without_declaration("<speak>\n<?xml ?>") == "<speak>\n<?xml ?>"
