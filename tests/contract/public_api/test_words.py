"""The words that the bundled model speaks: with their times, in order, inside the sound, wherever
the request is cut or resumed; none left out; the same ones in another voice.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cosyserve.audio.encoding import from_pcm
from cosyserve.audio.wav import wav_header
from cosyserve.client.types import Prompt, WordTime
from cosyserve.errors import SpeechFault
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.calls import heard, one_by_one
from tests.stacks.whole_stack import WholeStack, whole_stack
from tools.quality.recordings.recording import Recording, Sentence
from tools.quality.words.alignment import align
from tools.quality.words.recognition import Recogniser
from tools.quality.words.spelling import words_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "One small step, then another. It costs 42 dollars."
WORDS = ["One", "small", "step", "then", "another", "It", "costs", "forty", "two", "dollars"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[WholeStack]:
    async with whole_stack(Path("models/demo")) as running:
        yield running


async def words(stack: WholeStack, text: str = TEXT, **options: Any) -> tuple[list[WordTime], float]:
    """The words, and the seconds of the whole sound."""
    speech = stack.client.synthesize(text, seed=3, **options)
    _, _, summary = await heard(speech)
    return speech.words, summary.audio_seconds


async def test_every_word_has_its_time_in_order_and_inside_the_sound(stack: WholeStack) -> None:
    found, seconds = await words(stack)
    assert [word.text.lower() for word in found] == [word.lower() for word in WORDS]
    assert [word.sentence for word in found] == sorted(word.sentence for word in found)
    assert all(0.0 <= word.start < word.end <= seconds for word in found)
    assert all(before.end <= after.start for before, after in itertools.pairwise(found))
    assert found[0].start < 0.5
    assert seconds - found[-1].end < 0.6
    assert all(0.04 <= word.end - word.start < 1.2 for word in found)


async def test_a_pause_belongs_to_no_word(stack: WholeStack) -> None:
    found, _ = await words(stack)
    gaps = [after.start - before.end for before, after in itertools.pairwise(found)]
    assert max(gaps) == pytest.approx(max(gaps[2], gaps[4]))
    assert max(gaps) > 0.08


async def test_times_follow_the_speed(stack: WholeStack) -> None:
    (normal, _), (slow, _) = [await words(stack, speed=speed, sentence_pause_milliseconds=0) for speed in (1.0, 0.5)]
    for one, other in zip(normal, slow, strict=True):
        assert (other.start, other.end) == pytest.approx((2 * one.start, 2 * one.end), abs=0.05)


@pytest.mark.parametrize("options", [{"start_sample": 30_000}, {"first_hop_tokens": 100, "max_hop_tokens": 400}])
async def test_times_depend_neither_on_hops_nor_on_a_resumption(stack: WholeStack, options: dict[str, int]) -> None:
    whole, _ = await words(stack)
    assert (await words(stack, **options))[0] == whole


async def test_the_whole_utterance_has_the_same_words_at_the_same_times(stack: WholeStack) -> None:
    """Each has its own arithmetic, so its own silence at the start."""
    streamed, _ = await words(stack, onset="natural")
    async with grpc.aio.insecure_channel(stack.address) as channel:
        request = synthesis_pb2.SynthesizeUnaryRequest(text=TEXT, seed=3, onset=synthesis_pb2.ONSET_NATURAL)
        whole = await synthesis_pb2_grpc.SynthesisServiceStub(channel).SynthesizeUnary(request, timeout=60)  # type: ignore[misc]
    assert [
        WordTime(word.text, word.start_seconds, word.end_seconds, word.sentence) for word in whole.words
    ] == streamed


async def test_pauses_of_the_text_move_the_words_behind_them(stack: WholeStack) -> None:
    short, _ = await words(stack, "[pause 10ms]One small step. [pause 20ms] It costs 42 dollars.")
    long, _ = await words(stack, "[pause 310ms]One small step. [pause 720ms] It costs 42 dollars.")
    moved = [after.start - before.start for before, after in zip(short, long, strict=True)]
    assert moved == pytest.approx([0.3] * 3 + [1.0] * 5, abs=0.001)


async def written(stack: WholeStack, *fragments: str, **options: Any) -> list[WordTime]:
    """The words of a text that is still being written: each of its sentences by itself."""

    async with stack.client.streaming_synthesize(one_by_one(fragments), seed=3, **options) as speech:
        assert await speech.read()
        return speech.words


async def test_the_pause_between_sentences_moves_the_words_behind_it(stack: WholeStack) -> None:
    none = await written(stack, TEXT, sentence_pause_milliseconds=0)
    more = await written(stack, TEXT, sentence_pause_milliseconds=500)
    assert {word.sentence for word in none} == {0, 1}
    moved = [after.start - before.start for before, after in zip(none, more, strict=True)]
    assert moved == pytest.approx([0.5 * word.sentence for word in none], abs=0.001)


async def test_a_text_that_is_written_in_sentences_has_the_words_of_the_whole(stack: WholeStack) -> None:
    fragments = ("[pause 100ms]It co", "sts 42 dol", "lars.")
    whole, _ = await words(stack, "".join(fragments))
    assert await written(stack, *fragments) == whole


async def test_a_text_that_is_spoken_by_token_has_words_however_it_is_cut(stack: WholeStack) -> None:
    """Another speech than that of the whole sentence, so at other times."""
    whole = await written(stack, TEXT, mode="tokens")
    assert [word.text.lower() for word in whole] == [word.lower() for word in WORDS]
    assert [word.sentence for word in whole] == [0] * 5 + [1] * 5
    assert all(0.04 <= word.end - word.start < 1.2 for word in whole)
    assert all(before.end <= after.start for before, after in itertools.pairwise(whole))
    assert await written(stack, *TEXT, mode="tokens") == whole
    assert await written(stack, TEXT[:13], TEXT[13:40], TEXT[40:], mode="tokens") == whole
    assert await written(stack, *TEXT, mode="tokens", start_sample=30_000) == whole


QUESTIONS = "What? Why? How?"
SEEDS = range(1, 7)


async def outcome(stack: WholeStack, seed: int, **options: str) -> list[str] | str:
    """The words, or the guard that found that some are missing."""
    speech = stack.client.synthesize(QUESTIONS, voice="af_heart", seed=seed, **options)  # type: ignore[arg-type]
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


SPOKEN = "She sells fresh bread and coffee near the old station every morning."
ANOTHER = "We will meet again tomorrow at noon in the garden behind the house."
MOST_ERRORS = 2
"""Of twelve and thirteen words: none on the machine of the README, and room for processors that
draw other tokens.
"""


async def test_another_voice_speaks_the_same_words(stack: WholeStack) -> None:
    ear = Recogniser(1)

    async def errors(text: str, audio: bytes) -> int:
        understood = await asyncio.to_thread(ear.text_of, Recording(Sentence(1, text), from_pcm(audio), 24_000))
        return align(words_of(text), words_of(understood)).errors.errors

    source = await stack.client.synthesize(SPOKEN, voice="af_heart", seed=3).read()
    recording = wav_header(24_000, len(source) // 2) + source
    converted = await stack.client.convert_voice(recording, voice="am_michael", seed=1).read()
    assert converted != source
    assert await errors(SPOKEN, converted) <= MOST_ERRORS
    for mode in ("zero_shot", "cross_lingual"):
        prompted = stack.client.synthesize(ANOTHER, prompt=Prompt(recording, SPOKEN), prompt_mode=mode, seed=1)
        audio, header, _ = await heard(prompted)
        assert header.voice.startswith("recording-")
        assert await errors(ANOTHER, audio) <= MOST_ERRORS
