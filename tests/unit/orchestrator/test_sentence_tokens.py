"""The tokens of a sentence: their first border, how they are read, and the words that have too few
of them.
"""

import asyncio

import pytest

from cosyserve.errors import LeftOut
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, SpokenWord, tokens_to_first_border
from services.orchestrator.speech.word_alignment import require_all_words

WORDS = (SpokenWord("or", 0, 2), SpokenWord("me", 2, 3), SpokenWord("a", 5, 1), SpokenWord("/nˈIki/", 6, 6))
"""By their ids they need 1, 2, no and 3 tokens."""
SENTENCE = Sentence(3, tuple(range(12)), 0, WORDS)
SPOKEN = (0, 2, 4, 6, 8, 10, 11, 13, 15, 16, 17, 19)


def timing(*starts: int) -> GenerationTiming:
    return GenerationTiming(0.0, 0.0, 0.0, starts)


WRITTEN = Sentence(3, whole=False)
"""As SENTENCE, written meanwhile."""
WRITTEN.extend((0, 1, 2, 3), WORDS[:1])
WRITTEN.extend(tuple(range(4, 12)), WORDS[1:])


@pytest.mark.parametrize(
    ("starts", "tokens", "missing", "sentence"),
    [
        (SPOKEN, 20, 0, SENTENCE),
        ((0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 5, 5), 6, 0, SENTENCE),  # the word of one letter may have none
        ((0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8), 9, 1, SENTENCE),
        ((0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8), 9, 1, SENTENCE),
        ((0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 6, 6), 6, 1, SENTENCE),
        ((0, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4), 4, 2, SENTENCE),
        ((0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 6, 6), 7, 0, SENTENCE),
        (SPOKEN, 20, 0, WRITTEN),
        ((0, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4), 4, 2, WRITTEN),
        # Without times or words it is passed over.
        ((), 1, 0, SENTENCE),
        (SPOKEN[:-1], 1, 0, SENTENCE),
        ((0, 0), 1, 0, Sentence(0, (1, 2))),
    ],
)
def test_words_without_time_are_counted(starts: tuple[int, ...], tokens: int, missing: int, sentence: Sentence) -> None:
    if not missing:
        require_all_words(sentence, timing(*starts), tokens)
        return
    with pytest.raises(LeftOut, match=f"llm left out {missing} of the 4 words of sentence 3") as caught:
        require_all_words(sentence, timing(*starts), tokens)
    assert not any(word.text in caught.value.message.split() for word in WORDS if word.text != "a"), (
        "no word of a text leaves in a message"
    )


async def test_what_is_waited_for() -> None:
    stream = TokenStream(SENTENCE, 1)
    stream.accept(has_text_starts=False)
    await stream.judged()
    stream = TokenStream(SENTENCE, 1)
    stream.accept(has_text_starts=True)
    stream.finish(timing(*SPOKEN))
    await stream.judged()
    stream.fail(LeftOut("x"))
    with pytest.raises(LeftOut):
        await stream.judged()


@pytest.mark.parametrize(
    ("prompt", "first_hop", "border"),
    [
        (0, 1, 25),
        (0, 25, 25),
        (0, 26, 50),
        (20, 1, 5),
        (20, 5, 5),
        (20, 6, 30),
        (25, 1, 25),
        (49, 1, 1),
        (49, 2, 26),
        (30, 100, 120),
    ],
)
def test_first_border(prompt: int, first_hop: int, border: int) -> None:
    assert tokens_to_first_border(prompt, first_hop) == border
    assert (prompt + border) % 25 == 0


async def test_tokens_are_read_from_the_start_by_every_reader() -> None:
    stream = TokenStream(Sentence(0, (1,)), seed=1)
    stream.extend([1, 2])
    early = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    stream.extend([3])
    late = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    stream.extend([4])
    stream.finish(GenerationTiming(0.0, 0.0, 0.0))
    assert await early == await late == await _all(stream) == [1, 2, 3, 4]


async def _all(stream: TokenStream) -> list[int]:
    return [token async for piece in stream.read() for token in piece]


async def test_who_waits_for_the_model_to_accept_a_sentence_waits_no_longer() -> None:
    stream = TokenStream(SENTENCE, 1)
    waiting = asyncio.create_task(stream.accepted())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.accept(has_text_starts=False)
    await waiting
    silent, failed = TokenStream(SENTENCE, 1), TokenStream(SENTENCE, 1)
    silent.extend([1])  # of a service that does not say when it accepts
    failed.fail(LeftOut("a word is missing"))
    for each in (silent, failed):
        await each.accepted()
