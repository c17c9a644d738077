"""Text that arrives over time, through all four services with the bundled voice: what is spoken
depends on the text, not on its cutting.
"""

import itertools
import random
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import ANY

import grpc
import pytest

from cosyserve.client.types import Summary, WordTime
from cosyserve.errors import InvalidRequest
from tests.stacks.calls import heard, one_by_one, until
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
MODES = ("sentences", "tokens")
TEXT = "Dr. Li paid $3.50. Who knew? 👩‍👩‍👧 Café open"
SPOKEN = ["doctor", "li", "paid", "three", "dollars", "fifty", "cents", "who", "knew", "cafe", "open"]


async def say(stack: WholeStack, fragments: list[str], **options: Any) -> tuple[bytes, Summary, list[WordTime]]:
    speech = stack.client.streaming_synthesize(one_by_one(fragments), **{"seed": 11, **options})
    async with speech:
        audio, _, summary = await heard(speech)
    return audio, summary, speech.words


def cut(text: str, cuts: list[int]) -> list[str]:
    return [text[begin:end] for begin, end in itertools.pairwise([0, *sorted(cuts), len(text)])]


@pytest.mark.parametrize("mode", MODES)
async def test_any_cutting_gives_the_same_samples_and_words(stack: WholeStack, mode: str) -> None:
    whole, summary, words = await say(stack, [TEXT], mode=mode)
    assert summary.sentences == 3
    assert len(whole) > 2 * 24_000 * 3
    assert [word.text.lower() for word in words] == SPOKEN
    choice = random.Random(5)
    for fragments in (list(TEXT), cut(TEXT, [choice.randrange(len(TEXT)) for _ in range(8)])):
        assert await say(stack, fragments, mode=mode) == (whole, ANY, words)


async def test_a_sentence_is_what_synthesize_makes_of_it(stack: WholeStack) -> None:
    alone = await stack.client.synthesize("Who knows?", seed=11).read()
    assert (await say(stack, ["Who kn", "ows?"]))[0] == alone


@pytest.mark.parametrize("mode", MODES)
async def test_a_lost_stream_is_resumed_by_its_text(stack: WholeStack, mode: str) -> None:
    whole, *_ = await say(stack, [TEXT], mode=mode)
    assert (await say(stack, list(TEXT), mode=mode, start_sample=30_001))[0] == whole[60_002:]


@pytest.mark.parametrize("mode", MODES)
async def test_flushes_belong_to_the_text(stack: WholeStack, mode: str) -> None:
    async def flushed(fragments: list[str], rest: list[str]) -> bytes:
        async with stack.client.streaming_synthesize(seed=11, mode=mode) as speech:
            for fragment in fragments:
                await speech.write(fragment)
            await speech.flush()
            for fragment in rest:
                await speech.write(fragment)
            await speech.finish()
            return await speech.read()

    once = await flushed(["No end here"], [" and on it goes."])
    assert await flushed(list("No end here"), list(" and on it goes.")) == once
    assert once != (await say(stack, ["No end here and on it goes."], mode=mode))[0]


@pytest.mark.parametrize("mode", MODES)
async def test_cancel_stops_the_engines(stack: WholeStack, mode: str) -> None:
    async with stack.client.streaming_synthesize(seed=3, mode=mode) as speech:
        await speech.write("word " * 40)
        await speech.flush()
        first = await anext(speech)
        await speech.cancel()
        rest, _, summary = await heard(speech)
        with pytest.raises(InvalidRequest, match="is over"):
            await speech.write("more")
    assert summary.cancelled
    assert summary.audio_seconds == pytest.approx((len(first.audio) + len(rest)) / 48_000)
    await until(lambda: not (stack.llm.engine.stats.running or stack.batcher.stats().streams), 10)
    assert (stack.batcher.stats().state_bytes, stack.llm.engine.stats.reserved_kv_bytes) == (0, 0)


async def test_a_writer_learns_why_the_call_is_over(stack: WholeStack) -> None:
    async with stack.client.streaming_synthesize(speed=9.0) as speech:
        with pytest.raises(InvalidRequest, match="speed is 9, allowed are"):
            await speech.write("Hello")


async def test_nothing_to_speak_is_refused(stack: WholeStack) -> None:
    for fragments in ([], ["..", "."]):
        with pytest.raises(InvalidRequest, match="nothing to speak"):
            await say(stack, fragments)


class TheirOwn(grpc.aio.AioRpcError):
    """What a caller's own gRPC service raises, whose answer it reads aloud."""

    def __init__(self) -> None:
        super().__init__(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details="the model is gone"
        )


@pytest.mark.parametrize("error", [OSError("the model is gone"), TheirOwn()])
async def test_an_error_in_what_the_caller_writes_is_raised_to_it(stack: WholeStack, error: Exception) -> None:
    async def breaks() -> AsyncIterator[str]:
        yield "The first half of "
        raise error

    speech = stack.client.streaming_synthesize(breaks())
    with pytest.raises(type(error)) as caught:
        await speech.read()
    assert caught.value is error
    await speech.close()
