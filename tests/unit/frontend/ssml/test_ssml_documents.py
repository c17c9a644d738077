"""SSML documents through the whole analysis: sentences with their rates, whole and streamed."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import StreamingInput, parts_of
from services.frontend.segmentation.pauses import Pause
from tests.unit.frontend.models import DEMO, TINY, analyzer


def whole(document: str, model: str = TINY, **how: Any) -> list[Sentence | Pause]:
    reading = analyzer(model).reading(
        **{"language_code": "", "allow_control_tokens": False, "pronunciations": {}} | how
    )
    return list(parts_of(analyzer(model), document, reading))


def texts(document: str, model: str = TINY, **how: Any) -> list[str]:
    return [part.text for part in whole(document, model, **how) if isinstance(part, Sentence)]


def outcome(fragments: list[str], model: str, *, partial: bool, **how: Any) -> list[object]:
    """Pauses, sentences, warnings and the refusal in order; a sentence in parts as its ids, rate
    and continuation.
    """
    reading = analyzer(model).reading(
        **{"language_code": "", "allow_control_tokens": False, "pronunciations": {}} | how
    )
    form = StreamingInput(analyzer(model), reading, 400, partial=partial)
    heard, ids = list[object](), list[int]()
    first: Sentence | None = None
    try:
        for piece in itertools.chain(itertools.chain.from_iterable(map(form.feed, fragments)), form.finish()):
            if partial and isinstance(piece, Sentence):
                first = first or piece
                ids += piece.token_ids
                if not piece.unfinished:
                    heard += [*reading.log.take(), (tuple(ids), first.rate, first.continues)]
                    first, ids = None, []
            else:
                heard += [*reading.log.take(), piece]
    except InvalidRequest as error:
        return [*heard, tuple(ids), error.message]
    return [*heard, *reading.log.take()]


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        (
            '<speak>Now <prosody rate="slow">slowly</prosody> again. <prosody rate="fast">Fast.</prosody></speak>',
            [
                ("Now.", 1.0, False, "en"),
                ("slowly.", 0.75, True, "en"),
                ("again.", 1.0, True, "en"),
                ("Fast.", 1.25, False, "en"),
            ],
        ),
        (
            "<speak><p>First</p><p><s>Second</s><s>Third</s></p>Fourth</speak>",
            [(f"{text}.", 1.0, False, "en") for text in ("First", "Second", "Third", "Fourth")],
        ),
        (
            '<speak>A<break time="300ms"/><break strength="weak"/>b [pause 1s] c</speak>',
            [("A.", 1.0, False, "en"), 300, 200, ("b.", 1.0, False, "en"), 1000, ("c.", 1.0, False, "en")],
        ),
        (
            '<speak>今天<lang xml:lang="en">12 dogs</lang>12<s xml:lang="de">12 Hunde</s></speak>',
            [
                ("今天。", 1.0, False, "zh"),
                ("twelve dogs.", 1.0, True, "en"),
                ("十二。", 1.0, True, "zh"),
                ("12 Hunde.", 1.0, False, "de"),
            ],
        ),
    ],
    ids=["rates", "sentences and paragraphs", "pauses", "languages"],
)
def test_parts_have_their_rate_their_language_and_what_goes_on_is_marked(document: str, parts: list[object]) -> None:
    assert [
        part.milliseconds if isinstance(part, Pause) else (part.text.strip(), part.rate, part.continues, part.language)
        for part in whole(document)
    ] == parts


def test_pronunciations_hold_in_documents_and_phonemes_of_the_document_win() -> None:
    document = '<speak>Nike and <phoneme alphabet="misaki" ph="nˈIk">Nike</phoneme> cost 5 km.</speak>'
    assert texts(document, DEMO, pronunciations={"Nike": "/nˈIki/"}) == ["/nˈIki/ and /nˈIk/ cost five kilometers."]
    assert texts(document, TINY, pronunciations={"Nike": "Naikee"}) == ["Naikee and Naikee cost five kilometers."]


@pytest.mark.parametrize(
    ("document", "spoken"),
    [
        (
            '<speak>In <say-as interpret-as="cardinal">1984</say-as> of them.</speak>',
            "In one thousand nine hundred and eighty four of them.",
        ),
        ('<speak>共<say-as interpret-as="cardinal">1984</say-as>人。</speak>', "共一千九百八十四人。"),
        (
            '<speak>共<say-as interpret-as="ordinal">2</say-as>, or the <say-as interpret-as="ordinal">2</say-as> '
            "one.</speak>",
            "共第二,or the second one.",
        ),
        ('<speak xml:lang="zh"><say-as interpret-as="date">2024-05-01</say-as></speak>', "二零二四年五月一日。"),
        ('<speak>A<say-as interpret-as="digits">12</say-as>B</speak>', "A one two B."),
        ('<speak><say-as interpret-as="x">12</say-as> dogs</speak>', "twelve dogs."),
        ('<speak>W<sub alias="orld 3">W3</sub>.</speak>', "World three."),
        ("<speak>*a* _b_ # c &lt;|im_end|&gt; https://a.com/b</speak>", "*a* _b_ # c   a dot com slash b."),
    ],
)
def test_what_is_spoken(document: str, spoken: str) -> None:
    assert texts(document) == [spoken]


def test_a_document_may_hold_control_tokens_where_they_are_allowed() -> None:
    document = '<speak>&lt;|endofprompt|&gt;<say-as interpret-as="digits">12</say-as></speak>'
    (sentence,) = [part for part in whole(document, allow_control_tokens=True) if isinstance(part, Sentence)]
    assert sentence.text == "<|endofprompt|>one two"
    assert analyzer(TINY).tokenizer.id_of("<|endofprompt|>") in sentence.token_ids


def test_nothing_is_spoken_of_a_document_that_is_malformed_further_down() -> None:
    with pytest.raises(InvalidRequest, match="SSML, line 2, column 3: mismatched tag"):
        next(
            iter(
                parts_of(
                    analyzer(TINY),
                    "<speak>One. Two.\n</p></speak>",
                    analyzer(TINY).reading("", allow_control_tokens=False, pronunciations={}),
                )
            )
        )


def test_what_is_put_in_counts_for_the_length_of_a_sentence_by_token() -> None:
    digits = f'<say-as interpret-as="digits">{"7" * 200}</say-as> '
    (*_, refusal) = outcome([f"<speak>{digits * 6}</speak>"], DEMO, partial=True)
    assert "pronunciations and SSML make" in str(refusal)
    assert "by token at most 4000" in str(refusal)


BEGIN = ("<speak>", '<?xml version="1.0"?>\n <speak xml:lang="zh">', "<speak xml:lang='en'>")
INSIDE = (
    "Hello ",
    "world",
    ". ",
    "? ",
    "3.14 ",
    "你好",
    "，",
    "。",
    "é ",
    "\n",
    "&amp;",
    "&#8364;5 ",
    "⊕ ",
    "[pause 100ms]",
    "[laughter] ",
    "Nike ",
    "<break time='1s'/>",
    "<s>Inside</s>",
    "<p>",
    "</p>",
    "<prosody rate='slow'>",
    "</prosody>",
    "<emphasis>loud</emphasis>",
    "<sub alias='World Wide'>W</sub>",
    "<say-as interpret-as='cardinal'>12</say-as>",
    "<say-as interpret-as='date'>2024-05-01</say-as>",
    "<phoneme alphabet='ipa' ph='ˈnaɪki'>Nike</phoneme>",
    "<lang xml:lang='en'>12 dogs</lang>",
    "<!-- c -->",
    "<break time='9ms'/>",
    "&nbsp;",
)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("model", [DEMO, TINY])
@settings(deadline=None, max_examples=60)
@given(
    begin=st.sampled_from(BEGIN),
    inside=st.lists(st.sampled_from(INSIDE), max_size=25),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_the_cutting_does_not_show(model: str, partial: bool, begin: str, inside: list[str], cuts: list[int]) -> None:
    text = begin + "".join(inside) + "</speak>"
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pronunciations = {"Nike": "Naikee"}
    in_one = outcome([text], model, partial=partial, pronunciations=pronunciations)
    cut = [text[start:end] for start, end in itertools.pairwise(borders)]
    assert outcome(cut, model, partial=partial, pronunciations=pronunciations) == in_one
    assert outcome(list(text), model, partial=partial, pronunciations=pronunciations) == in_one


@pytest.mark.parametrize("model", [DEMO, TINY])
def test_sentence_by_sentence_a_document_is_what_it_is_as_a_whole(model: str) -> None:
    document = (
        '<speak><s>One here.</s> <prosody rate="90%">Two <emphasis>there</emphasis></prosody><break time="1s"/>'
        '<s><say-as interpret-as="time">7:30</say-as> o\'clock</s></speak>'
    )
    streamed = [piece for piece in outcome([document], model, partial=False) if isinstance(piece, Sentence | Pause)]
    assert streamed == whole(document, model)


@pytest.mark.parametrize(
    "text", ["<", "<spea", "  ", "<speaker>Hello there.</speaker>", "a <speak>b</speak>", "< 3 dogs"]
)
@pytest.mark.parametrize("partial", [False, True])
def test_other_text_is_what_it_was(text: str, partial: bool) -> None:
    """Plain text that begins like a document is delayed no longer than necessary, and read as
    usual.
    """
    reading = analyzer(TINY).reading("", allow_control_tokens=False, pronunciations={})
    heard = outcome([text], TINY, partial=partial)
    assert outcome(list(text), TINY, partial=partial) == heard
    if not partial:
        assert [part for part in heard if isinstance(part, Sentence)] == list(analyzer(TINY).parts(text, reading))
