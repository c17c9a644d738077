"""Which sentences have words that nobody can have said in their time."""

import pytest
from services.orchestrator.speech.word_alignment import require_all_words

from cosyserve.errors import LeftOut
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import OpenSentence, Sentence, SpokenWord

WORDS = (SpokenWord("or", 0, 2), SpokenWord("me", 2, 3), SpokenWord("a", 5, 1), SpokenWord("/nˈIki/", 6, 6))
"""By their ids they need 1, 2, no and 3 tokens."""
SENTENCE = Sentence(3, tuple(range(12)), 0, WORDS)
SPOKEN = (0, 2, 4, 6, 8, 10, 11, 13, 15, 16, 17, 19)


def timing(*starts: int) -> GenerationTiming:
    return GenerationTiming(0.0, 0.0, 0.0, starts)


def left_out(starts: tuple[int, ...], tokens: int, sentence: Sentence | OpenSentence = SENTENCE) -> str:
    try:
        require_all_words(sentence, timing(*starts), tokens)
    except LeftOut as fault:
        return fault.message
    return ""


def test_words_with_the_fewest_tokens_are_spoken() -> None:
    assert not left_out(SPOKEN, 20)
    assert not left_out((0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 5, 5), 6), "the word of one letter may have none"


@pytest.mark.parametrize(
    ("starts", "tokens", "missing"),
    [
        ((0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8), 9, 1),
        ((0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8), 9, 1),
        ((0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 6, 6), 6, 1),
        ((0, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4), 4, 2),
        ((0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 6, 6), 7, 0),
    ],
)
def test_words_without_time_are_counted(starts: tuple[int, ...], tokens: int, missing: int) -> None:
    told = left_out(starts, tokens)
    assert (f"llm left out {missing} of the 4 words of sentence 3" in told) is bool(missing)
    assert not any(word.text in told.split() for word in WORDS if word.text != "a"), (
        "no word of a text leaves in a message"
    )


def test_a_sentence_without_times_or_words_is_passed_over() -> None:
    assert not left_out((), 1)
    assert not left_out(SPOKEN[:-1], 1)
    assert not left_out((0, 0), 1, Sentence(0, (1, 2)))


def test_a_sentence_that_was_written_meanwhile_is_judged_alike() -> None:
    sentence = OpenSentence(3)
    sentence.extend((0, 1, 2, 3), WORDS[:1])
    sentence.extend(tuple(range(4, 12)), WORDS[1:])
    assert not left_out(SPOKEN, 20, sentence)
    assert left_out((0, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4), 4, sentence)


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
