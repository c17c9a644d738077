"""Text features of a request over real gRPC: pauses, pronunciations, control tokens."""

from typing import Any

import grpc
import pytest

from tests.contract.frontend.frontend_calls import analyze, stream
from tests.stacks.calls import refusal

pytestmark = pytest.mark.start(default_voice="zs_a")
TEXT = "[pause 1s]First one here.[pause 200ms] [pause 300ms]Then 2 more. <break time='0.5s'/>"


async def test_pauses_come_with_the_next_sentence_and_the_last_by_itself(stub: Any) -> None:
    responses = await analyze(stub, TEXT)
    assert [response.sentence.pause_before_milliseconds for response in responses] == [1000, 500, 0]
    assert [response.sentence.text for response in responses] == ["First one here.", "Then two more.", ""]
    assert [response.closing_pause_milliseconds for response in responses] == [0, 0, 500]
    assert not responses[-1].HasField("sentence")


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_pauses_in_a_stream_are_those_of_the_whole(stub: Any, step: int) -> None:
    whole = await analyze(stub, TEXT)
    streamed = await stream(stub, [TEXT[place : place + step] for place in range(0, len(TEXT), step)])

    def heard(responses: list[Any]) -> list[tuple[str, int, int]]:
        return [
            (r.sentence.text.strip(), r.sentence.pause_before_milliseconds, r.closing_pause_milliseconds)
            for r in responses
        ]

    assert heard(streamed) == heard(whole)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("step", [1, 7])
async def test_a_call_that_continues_another_sends_the_pending_pause(stub: Any, step: int, partial: bool) -> None:
    """Wherever the first call ends, the sentences and pauses after its progress are those of an
    uninterrupted call.
    """
    text = "[pause 1s] One here.[pause 200ms][pause 300ms] Two. [pause 400ms]"
    fragments = [text[place : place + step] for place in range(0, len(text), step)]

    def heard(responses: list[Any]) -> dict[int, int]:
        """Pause in front of each sentence, by its index."""
        sentences = [response.sentence for response in responses if response.HasField("sentence")]
        return {sentence.index: sentence.pause_before_milliseconds for sentence in reversed(sentences)}

    whole = await stream(stub, fragments, partial_sentences=partial, reports_progress=True)
    assert heard(whole) == {0: 1000, 1: 500}
    for place, response in enumerate(whole):
        if not response.HasField("progress"):
            continue
        left, sent = response.progress, heard(whole[:place])
        rest = await stream(
            stub,
            [text[left.characters :]],
            partial_sentences=partial,
            first_index=left.sentences,
            first_pause_milliseconds=left.pause_milliseconds,
        )
        # The first call has already sent the pause of a sentence that it began.
        assert heard(rest) == {index: 0 if index in sent else (1000, 500)[index] for index in range(left.sentences, 2)}
        assert rest[-1].closing_pause_milliseconds == 400


async def test_a_call_that_continues_another_counts_no_sentence_of_the_open_unit(stub: Any) -> None:
    """A unit that is longer than the model's longest sentence has several, and all of them are sent
    again.
    """
    text = "One here. " + "extraordinary " * 25

    def heard(responses: list[Any]) -> dict[int, list[int]]:
        """Ids of each sentence, by its index."""
        result: dict[int, list[int]] = {}
        for sentence in (response.sentence for response in responses if response.HasField("sentence")):
            result.setdefault(sentence.index, []).extend(sentence.token_ids)
        return result

    fragments = [text[place : place + 40] for place in range(0, len(text), 40)]
    whole = await stream(stub, fragments, partial_sentences=True, reports_progress=True)
    assert len(heard(whole)) > 2
    for left in (response.progress for response in whole if response.HasField("progress")):
        rest = await stream(stub, [text[left.characters :]], partial_sentences=True, first_index=left.sentences)
        assert heard(rest) == {index: ids for index, ids in heard(whole).items() if index >= left.sentences}


@pytest.mark.parametrize("partial", [False, True])
async def test_a_call_that_goes_on_from_another_reads_digits_in_the_language_before_it(
    stub: Any, partial: bool
) -> None:
    (*_, progress) = await stream(stub, ["今天很好。 "], partial_sentences=partial, reports_progress=True)
    assert (progress.progress.last_language_code, progress.progress.sentences) == ("zh", 1)

    async def ids(**setup: Any) -> bytes:
        responses = await stream(stub, ["12"], partial_sentences=partial, **setup)
        return bytes(token for response in responses for token in response.sentence.token_ids)

    assert (await ids(last_language_code=progress.progress.last_language_code)).decode() == "十二。"
    assert (await ids(last_language_code="zh-Hans-CN")).decode() == "十二。"
    assert await ids() == b"twelve."
    assert await ids(language_code="en", last_language_code="zh") == b"twelve."
    assert (await ids(last_language_code="und")) == b"12."
    wrong = stream(stub, ["12"], last_language_code="zh_CN")
    await refusal(wrong, grpc.StatusCode.INVALID_ARGUMENT, "last_language_code is 'zh_CN'; expected a BCP-47 tag")


@pytest.mark.parametrize(
    ("text", "setup", "message"),
    [
        ("a [pause 9ms]", {}, "pause of 9 ms, allowed are 10 to 5000 ms"),
        ("a" + "[pause 5s]" * 13, {}, "add up to 65000 ms, allowed are at most 60000 ms"),
        ("[pause 1s]", {}, "nothing to speak"),
        ("😀 [pause 1s] <|im_end|>", {}, "nothing to speak"),
        ("a", {"pronunciations": {"": "b"}}, "1 to 64 characters"),
        ("a", {"pronunciations": {"a": "/ˈA/"}}, "this model reads text"),
        ("a", {"pronunciations": {f"a{n}": "b" for n in range(201)}}, "at most 200"),
        ("a", {"max_sentence_characters": 9}, "setup.max_sentence_characters is 9, allowed are 10 to 20000"),
        ("a", {"max_sentence_characters": -1}, "setup.max_sentence_characters is -1, allowed are 10 to 20000"),
    ],
)
async def test_a_bad_wish_is_refused(stub: Any, text: str, setup: dict[str, Any], message: str) -> None:
    await refusal(analyze(stub, text, **setup), grpc.StatusCode.INVALID_ARGUMENT, message)


async def test_control_tokens_need_permission(stub: Any) -> None:
    text = "say<|endofprompt|>this"
    assert [response.sentence.text for response in await analyze(stub, text)] == ["say this."]
    (allowed,) = await analyze(stub, text, allow_control_tokens=True)
    assert allowed.sentence.text == text
    assert len(allowed.sentence.token_ids) == len("say") + 1 + len("this")


async def test_a_respelling_is_read(stub: Any) -> None:
    (response,) = await analyze(stub, "SQL 2 you", pronunciations={"SQL": "sequel"})
    assert response.sentence.text == "sequel two you."


LONG = "We walked along the river, talked about old times, and came home late. It rained."


@pytest.mark.parametrize("step", [0, 1, 7])
async def test_a_limit_of_sentence_length_is_kept(stub: Any, step: int) -> None:
    """step: characters of a fragment; 0: a whole text."""
    setup = {"max_sentence_characters": 40, "language_code": "en"}
    pieces = [LONG[place : place + step] for place in range(0, len(LONG), step)] if step else []
    responses = await (stream(stub, pieces, **setup) if step else analyze(stub, LONG, **setup))
    sentences = [response.sentence for response in responses]
    assert [(sentence.text.strip(), sentence.continues) for sentence in sentences] == [
        ("We walked along the river,", False),
        ("talked about old times,", True),
        ("and came home late.", True),
        ("It rained.", False),
    ]


async def test_a_limit_is_refused_for_parts_of_sentences(stub: Any) -> None:
    wrong = stream(stub, ["one"], max_sentence_characters=40, partial_sentences=True)
    await refusal(wrong, grpc.StatusCode.INVALID_ARGUMENT, "max_sentence_characters is set with partial_sentences")
