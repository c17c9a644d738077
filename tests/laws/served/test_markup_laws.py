"""What a text asks for besides its words, heard through all four services: an SSML rate is a speed
of one sentence, a pause is exact silence in its place, and neither cutting nor resuming is
heard.
"""

import itertools
from typing import Any

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.client.types import Mode, TextWarning, WordTime
from cosyserve.errors import InvalidRequest
from cosyserve.v1 import synthesis_pb2
from tests.stacks.calls import all_of, check_places, one_by_one
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
DOCUMENT = (
    '<speak>One <emphasis>thing</emphasis> ⊕ here. <prosody rate="slow">And slowly</prosody> on.<break time="300ms"/>'
    '<s>It is <say-as interpret-as="characters">AB</say-as>.</s></speak>'
)


async def say_with_words(stack: WholeStack, text: str, **options: Any) -> tuple[bytes, list[WordTime]]:
    async with stack.client.synthesize(
        text, **{"seed": 11, "sentence_pause_milliseconds": 0, "onset": "natural", **options}
    ) as speech:
        return await speech.read(), speech.words


async def streamed(
    stack: WholeStack, fragments: list[str], mode: Mode
) -> tuple[bytes, list[WordTime], list[TextWarning]]:
    async with stack.client.streaming_synthesize(one_by_one(fragments), seed=11, mode=mode) as speech:
        return await speech.read(), speech.words, speech.warnings


async def test_a_sentence_at_a_rate_is_the_sentence_at_that_speed(stack: WholeStack) -> None:
    """Also in time: its words last as long, and what stands in front of it is untouched."""
    first, then = "<s>One thing here.</s>", "<s>Then another one.</s>"
    mixed, words = await say_with_words(stack, f'<speak>{first}<prosody rate="slow">{then}</prosody></speak>')
    plain_first, _ = await say_with_words(stack, f"<speak>{first}</speak>")
    slow_first, _ = await say_with_words(stack, f"<speak>{first}</speak>", speed=0.75)
    slow, slow_words = await say_with_words(stack, f"<speak>{first}{then}</speak>", speed=0.75)
    assert mixed == plain_first + slow[len(slow_first) :]
    seconds = (len(slow_first) - len(plain_first)) / 48_000
    expected = [(w.text, w.start - seconds, w.end - seconds) for w in slow_words if w.sentence == 1]
    assert [w.text for w in words if w.sentence == 1] == ["Then", "another", "one"]
    for word, (text, start, end) in zip([w for w in words if w.sentence == 1], expected, strict=True):
        assert (word.text, word.start, word.end) == (text, pytest.approx(start), pytest.approx(end))


async def test_a_document_that_only_holds_text_is_the_text(stack: WholeStack) -> None:
    assert await say_with_words(stack, "<speak>Then another one.</speak>") == await say_with_words(
        stack, "Then another one."
    )


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_the_cutting_is_not_heard(stack: WholeStack, mode: Mode) -> None:
    whole = await streamed(stack, [DOCUMENT], mode)
    assert [(w.kind, w.left_out) for w in whole[2]] == [("unsupported_markup", ("emphasis",)), ("unreadable", ("⊕",))]
    assert await streamed(stack, list(DOCUMENT), mode) == whole
    cuts = [0, 3, 40, 41, 90, 130, len(DOCUMENT)]
    assert await streamed(stack, [DOCUMENT[start:end] for start, end in itertools.pairwise(cuts)], mode) == whole


async def test_a_resumed_document_is_the_rest_of_it(stack: WholeStack) -> None:
    whole, _ = await say_with_words(stack, DOCUMENT)
    for start in (1, len(whole) // 4, len(whole) // 2 - 10):
        assert (await say_with_words(stack, DOCUMENT, start_sample=start))[0] == whole[2 * start :]


async def test_what_is_wrong_with_a_document_reaches_the_caller(stack: WholeStack) -> None:
    with pytest.raises(
        InvalidRequest, match=r"SSML, line 1, column 8: prosody: rate 0.5 times speed 0.9 of the request is 0.45"
    ):
        await say_with_words(stack, '<speak><prosody rate="x-slow">Hi.</prosody></speak>', speed=0.9)
    with pytest.raises(InvalidRequest, match=r"cannot read \(CJK\); there is nothing to speak; the model reads en"):
        await say_with_words(stack, "你好，世界。")
    audio, _, summary = await stack.client.synthesize_unary("Hello 你好.", seed=1)
    assert audio
    assert [warning.left_out for warning in summary.warnings] == [("你好",)]


BYTES_PER_MILLISECOND = 48
TEXT = "One thing. [pause 400ms] <break time='0.3s'/> Then another."


async def say(stack: WholeStack, text: str, **options: Any) -> bytes:
    return await stack.client.synthesize(text, **{"seed": 11, **options}).read()


def silence(milliseconds: int) -> bytes:
    return bytes(BYTES_PER_MILLISECOND * milliseconds)


async def test_a_pause_moves_what_follows_and_changes_no_sample_of_it(stack: WholeStack) -> None:
    longer, shorter = await say(stack, TEXT), await say(stack, TEXT.replace("400ms", "10ms"))
    place = longer.index(silence(700))
    assert longer[:place] + longer[place + len(silence(390)) :] == shorter
    assert 0 < place < len(shorter)


async def test_pauses_at_the_start_and_the_end(stack: WholeStack) -> None:
    plain = await say(stack, "Hi there.")
    assert await say(stack, "[pause 1.5s]Hi there.[pause 20ms][pause 230ms]") == silence(1500) + plain + silence(250)
    faster = await say(stack, "Hi there.", speed=1.5)
    assert await say(stack, "[pause 500ms]Hi there.", speed=1.5) == silence(500) + faster


async def test_the_first_message_names_the_engines_though_it_is_silent(stack: WholeStack) -> None:
    call = stack.client._stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="[pause 3s]Hi.", seed=1))
    responses = await all_of(call)
    assert responses[0].header.engine
    assert not any(responses[0].audio)
    assert responses[-1].summary.audio_seconds == sum(len(response.audio) for response in responses) / 48_000
    check_places(responses)


@pytest.mark.parametrize(
    ("into", "text"),
    [(1, TEXT), (5_000, TEXT), (16_799, TEXT), (5_000, "Hi.[pause 700ms]No.")],
    ids=["1", "5000", "16799", "5000-short"],
)
async def test_a_resumed_request_may_begin_inside_a_pause(stack: WholeStack, into: int, text: str) -> None:
    whole = await say(stack, text)
    start = whole.index(silence(700)) // 2 + into
    assert await say(stack, text, start_sample=start) == whole[2 * start :]
    mulaw = {"encoding": Encoding.MULAW, "sample_rate": 8_000}
    assert await say(stack, text, start_sample=start // 3, **mulaw) == (await say(stack, text, **mulaw))[start // 3 :]


async def test_a_resumed_request_may_begin_inside_the_first_and_the_last_pause(stack: WholeStack) -> None:
    text = "[pause 200ms]Hi.[pause 300ms]"
    whole = await say(stack, text)
    for start in (100, len(whole) // 2 - 100):
        assert await say(stack, text, start_sample=start) == whole[2 * start :]


async def test_unary_counts_pauses_and_refuses_what_is_too_long(stack: WholeStack) -> None:
    audio, _, summary = await stack.client.synthesize_unary("[pause 1s]Hi there.[pause 1s]", seed=11)
    assert audio[: len(silence(1000))] == silence(1000) == audio[-len(silence(1000)) :]
    assert summary.audio_seconds == len(audio) / 48_000
    with pytest.raises(InvalidRequest, match="s long"):
        await stack.client.synthesize_unary("Hi." + "[pause 5s]" * 12 + "Hi." + "[pause 5s]" * 12 + "Hi.", seed=11)


async def test_a_pause_out_of_range_is_refused(stack: WholeStack) -> None:
    with pytest.raises(InvalidRequest, match="allowed are 10 to 5000 ms"):
        await say(stack, "Hi. [pause 6s] Ho.")


async def test_a_requests_pronunciation_is_heard(stack: WholeStack) -> None:
    async def spoken(words: dict[str, str]) -> bytes:
        return await say(stack, "Buy Nike shoes.", pronunciations=words)

    given = await spoken({"Nike": "/nˈIki/"})
    assert given == await spoken({"Nike": "/nˈIki/", "unused": "word"})
    assert given != await spoken({"Nike": "/zɪɡzæɡzˈuːm/"})
