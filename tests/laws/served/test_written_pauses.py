"""Pauses that a text asks for, heard by a client through all four services: exact silence, in its
place, counted like every sample.
"""

from typing import Any

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.errors import InvalidRequest
from cosyserve.v1 import synthesis_pb2
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
BYTES_PER_MILLISECOND = 48
TEXT = "One thing. [pause 400ms] <break time='0.3s'/> Then another."


async def say(stack: WholeStack, text: str, **options: Any) -> bytes:
    return await stack.client.synthesize(text, **{"seed": 11, **options}).read()


def silence(milliseconds: int) -> bytes:
    return bytes(BYTES_PER_MILLISECOND * milliseconds)


async def test_a_pause_moves_what_follows_and_changes_no_sample_of_it(stack: WholeStack) -> None:
    longer = await say(stack, TEXT)
    shorter = await say(stack, TEXT.replace("400ms", "10ms"))
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
    responses = [response async for response in call]
    assert responses[0].header.engine
    assert not any(responses[0].audio)
    assert responses[-1].summary.audio_seconds == sum(len(response.audio) for response in responses) / 48_000
    place = 0
    for response in responses:
        assert response.start_sample == place
        place += len(response.audio) // 2


@pytest.mark.parametrize("into", [1, 5_000, 16_799])
async def test_a_resumed_request_may_begin_inside_a_pause(stack: WholeStack, into: int) -> None:
    whole = await say(stack, TEXT)
    start = whole.index(silence(700)) // 2 + into
    assert await say(stack, TEXT, start_sample=start) == whole[2 * start :]
    mulaw = {"encoding": Encoding.MULAW, "sample_rate": 8_000}
    assert await say(stack, TEXT, start_sample=start // 3, **mulaw) == (await say(stack, TEXT, **mulaw))[start // 3 :]


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
