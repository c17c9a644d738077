"""SSML documents through all four services: a rate is a speed of one sentence, and neither cutting
nor resuming is heard.
"""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cosyserve.client.types import Mode, TextWarning, WordTime
from cosyserve.errors import InvalidRequest
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
DOCUMENT = (
    '<speak>One <emphasis>thing</emphasis> ⊕ here. <prosody rate="slow">And slowly</prosody> on.<break time="300ms"/>'
    '<s>It is <say-as interpret-as="characters">AB</say-as>.</s></speak>'
)


async def say(stack: WholeStack, text: str, **options: Any) -> tuple[bytes, list[WordTime]]:
    async with stack.client.synthesize(
        text, **{"seed": 11, "sentence_pause_milliseconds": 0, "onset": "natural", **options}
    ) as speech:
        return await speech.read(), speech.words


async def streamed(
    stack: WholeStack, fragments: list[str], mode: Mode
) -> tuple[bytes, list[WordTime], list[TextWarning]]:
    async def arriving() -> AsyncIterator[str]:
        for fragment in fragments:
            yield fragment

    async with stack.client.streaming_synthesize(arriving(), seed=11, mode=mode) as speech:
        audio = await speech.read()
        return audio, speech.words, speech.warnings


async def test_a_sentence_at_a_rate_is_the_sentence_at_that_speed(stack: WholeStack) -> None:
    """Also in time: its words last as long, and what stands in front of it is untouched."""
    first, then = "<s>One thing here.</s>", "<s>Then another one.</s>"
    mixed, words = await say(stack, f'<speak>{first}<prosody rate="slow">{then}</prosody></speak>')
    plain_first, _ = await say(stack, f"<speak>{first}</speak>")
    slow_first, _ = await say(stack, f"<speak>{first}</speak>", speed=0.75)
    slow, slow_words = await say(stack, f"<speak>{first}{then}</speak>", speed=0.75)
    assert mixed == plain_first + slow[len(slow_first) :]
    seconds = (len(slow_first) - len(plain_first)) / 48_000
    expected = [(w.text, w.start - seconds, w.end - seconds) for w in slow_words if w.sentence == 1]
    assert [w.text for w in words if w.sentence == 1] == ["Then", "another", "one"]
    for word, (text, start, end) in zip([w for w in words if w.sentence == 1], expected, strict=True):
        assert (word.text, word.start, word.end) == (text, pytest.approx(start), pytest.approx(end))


async def test_a_document_that_only_holds_text_is_the_text(stack: WholeStack) -> None:
    assert await say(stack, "<speak>Then another one.</speak>") == await say(stack, "Then another one.")


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_the_cutting_is_not_heard(stack: WholeStack, mode: Mode) -> None:
    whole = await streamed(stack, [DOCUMENT], mode)
    assert [(w.kind, w.left_out) for w in whole[2]] == [("unsupported_markup", ("emphasis",)), ("unreadable", ("⊕",))]
    assert await streamed(stack, list(DOCUMENT), mode) == whole
    cuts = [0, 3, 40, 41, 90, 130, len(DOCUMENT)]
    assert await streamed(stack, [DOCUMENT[start:end] for start, end in itertools.pairwise(cuts)], mode) == whole


async def test_a_resumed_document_is_the_rest_of_it(stack: WholeStack) -> None:
    whole, _ = await say(stack, DOCUMENT)
    for start in (1, len(whole) // 4, len(whole) // 2 - 10):
        assert (await say(stack, DOCUMENT, start_sample=start))[0] == whole[2 * start :]


async def test_what_is_wrong_with_a_document_reaches_the_caller(stack: WholeStack) -> None:
    with pytest.raises(
        InvalidRequest, match=r"SSML, line 1, column 8: prosody: rate 0.5 times speed 0.9 of the request is 0.45"
    ):
        await say(stack, '<speak><prosody rate="x-slow">Hi.</prosody></speak>', speed=0.9)
    with pytest.raises(InvalidRequest, match=r"cannot read \(CJK\); there is nothing to speak; the model reads en"):
        await say(stack, "你好，世界。")
    audio, _, summary = await stack.client.synthesize_unary("Hello 你好.", seed=1)
    assert audio
    assert [warning.left_out for warning in summary.warnings] == [("你好",)]
