"""SSML documents and warnings over real gRPC: the responses to a caller and the status codes."""

from typing import Any

import grpc
import pytest

from cosyserve.v1.warning_pb2 import TextWarning
from tests.contract.frontend.frontend_calls import analyze, stream
from tests.stacks.calls import refusal
from tests.stacks.up_process import DEMO

pytestmark = pytest.mark.start(model=DEMO)
DOCUMENT = (
    '<speak>One 你好 here. <emphasis>Two</emphasis> is <prosody rate="slow">slow</prosody><break time="1s"/> '
    'and <say-as interpret-as="digits">12</say-as>.</speak>'
)


async def reason_of(answer: Any) -> str:
    """Why an argument is refused."""
    return (await refusal(answer, grpc.StatusCode.INVALID_ARGUMENT)).details() or ""


def warnings(responses: list[Any]) -> list[tuple[int, tuple[str, ...], int]]:
    return [
        (result.kind, tuple(result.left_out), result.sentence) for response in responses for result in response.warnings
    ]


async def test_rates_continuations_and_pauses_come_with_their_sentences(stub: Any) -> None:
    result = [response.sentence for response in await analyze(stub, DOCUMENT)]
    assert [(s.text.strip(), s.rate, s.continues, s.pause_before_milliseconds) for s in result][-2:] == [
        ("slow.", 0.75, True, 0),
        ("and one two.", 0.0, False, 1000),
    ]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("step", [1, 5, 1000])
async def test_warnings_are_sent_once_with_their_sentence(stub: Any, step: int, partial: bool) -> None:
    fragments = [DOCUMENT[at : at + step] for at in range(0, len(DOCUMENT), step)]
    responses = await stream(stub, fragments, partial_sentences=partial)
    assert sorted(warnings(responses)) == [
        (TextWarning.KIND_UNREADABLE, ("你好",), 0),
        (TextWarning.KIND_UNSUPPORTED_MARKUP, ("emphasis",), 1),
    ]
    rates = {response.sentence.index: response.sentence.rate for response in responses if response.HasField("sentence")}
    assert rates == {0: 0.0, 1: 0.0, 2: 0.75, 3: 0.0}


async def test_text_left_out_after_the_last_sentence_is_reported_by_itself(stub: Any) -> None:
    *_, last = await analyze(stub, "Hello there.[pause 1s]你好。[pause 1s]")
    assert not last.HasField("sentence")
    assert (warnings([last]), last.closing_pause_milliseconds) == ([(TextWarning.KIND_UNREADABLE, ("你好",), 1)], 2000)
    *_, last = await stream(stub, ["Hello there. ", "你好。"])
    assert warnings([last]) == [(TextWarning.KIND_UNREADABLE, ("你好",), 1)]


@pytest.mark.parametrize("text", ["你好，世界。", "Привет 你好", "<speak>你好</speak>"])
async def test_a_text_of_which_nothing_is_left_is_refused_with_the_reason(stub: Any, text: str) -> None:
    whole, streamed = await reason_of(analyze(stub, text)), await reason_of(stream(stub, [text[:3], text[3:]]))
    assert whole == streamed
    assert "CJK" in whole
    assert whole.endswith("there is nothing to speak; the model reads en")
    assert "好" not in whole


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "<speak>Hi <break time='9ms'/></speak>",
            "SSML, line 1, column 11: break: time is 9 ms, allowed are 10 to 5000 ms",
        ),
        ("<speak>Hi", "SSML, line 1, column 10: no element found"),
        (
            "<speak/>",
            "text holds only punctuation, blanks or what this model cannot read; there is nothing to speak; the model "
            "reads en",
        ),
        ("<!DOCTYPE speak><speak>Hi</speak>", "SSML, line 1, column 16: a document type declaration is not allowed"),
    ],
)
async def test_bad_documents_are_refused_alike_by_both(stub: Any, text: str, reason: str) -> None:
    assert await reason_of(analyze(stub, text)) == reason
    for partial in (False, True):
        assert await reason_of(stream(stub, [text[:9], text[9:]], partial_sentences=partial)) == reason


async def test_the_speed_of_the_request_bounds_rates(stub: Any) -> None:
    text = '<speak><prosody rate="x-slow">Hi.</prosody></speak>'
    assert len(await analyze(stub, text, speed=1.0)) == 1
    assert "rate 0.5 times speed 0.8 of the request is 0.4, allowed are 0.5 to 2" in await reason_of(
        analyze(stub, text, speed=0.8)
    )


async def test_of_a_document_nothing_is_settled_before_its_end(stub: Any) -> None:
    """So a call that takes over receives the whole document, and gives the same sentences with the
    same numbers.
    """
    responses = await stream(stub, list(DOCUMENT), reports_progress=True)
    progress = [response.progress for response in responses if response.HasField("progress")]
    assert [result for result in progress if result.characters or result.sentences] == []
    assert [result.document for result in progress] == [False] * 6 + [True] * (len(DOCUMENT) - 6)


async def test_a_text_that_goes_on_is_no_document(stub: Any) -> None:
    for setup in ({"goes_on": True}, {"first_index": 1}, {"last_language_code": "en"}):
        (response,) = await stream(stub, ["<speak>Hi."], **setup)
        assert response.sentence.text == "Hi."


async def test_a_document_has_a_longest(stub: Any) -> None:
    reason = await reason_of(stream(stub, ["<speak>", *["Hi there. " * 100] * 20]))
    assert reason == "the SSML document has over 20000 characters, the most that one may have"
