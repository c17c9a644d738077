"""The bundled voice: sentences joined as the reference joins them lose words and fail a guard; one
by one they keep them.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cosyserve.errors import SpeechFault
from tests.stacks.whole_stack import WholeStack, whole_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "What? Why? How?"
SEEDS = range(1, 7)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[WholeStack]:
    async with whole_stack(Path("models/demo")) as running:
        yield running


async def outcome(stack: WholeStack, seed: int, **options: str) -> list[str] | str:
    """The words, or the guard that found that some are missing."""
    speech = stack.client.synthesize(TEXT, voice="af_heart", seed=seed, **options)  # type: ignore[arg-type]
    try:
        await speech.read()
    except SpeechFault as fault:
        return fault.guard
    return [word.text for word in speech.words]


async def test_sentences_one_by_one_keep_their_words(stack: WholeStack) -> None:
    for seed in SEEDS:
        assert await outcome(stack, seed) == ["What", "Why", "How"]


async def test_a_joined_utterance_that_loses_words_fails(stack: WholeStack) -> None:
    found = [await outcome(stack, seed, profile="upstream") for seed in SEEDS]
    print(found)
    assert "LEFT_OUT" in found
    assert all(each in ("LEFT_OUT", ["What", "Why", "How"]) for each in found)


async def test_a_whole_text_sounds_as_one_that_is_being_written(stack: WholeStack) -> None:
    text = "No problem! Anything else? Hmm, well... okay. See gate C. Then come back at 5 p.m. today."
    whole = await stack.client.synthesize(text, voice="am_michael", seed=5, language_code="en").read()
    async with stack.client.streaming_synthesize(voice="am_michael", seed=5, language_code="en") as written:
        for at in range(0, len(text), 7):
            await written.write(text[at : at + 7])
        await written.finish()
        assert await written.read() == whole
