"""Trimmed = natural without its leading and trailing silence: with real networks, for every
cutting, rate, encoding, mode and speed.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from cosyserve.audio.encoding import Encoding, OutputStream
from tests.stacks.calls import heard, one_by_one
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
VOICES = ("af_heart", "am_michael")
TEXT = "Here is the first one. Then, after a moment, comes the second one."
SHORT = "Here it is."
"""A cheap text for the tests that run each time."""
LEAD, TAIL = 480, 2_400


async def say(stack: WholeStack, onset: str, text: str = TEXT, **options: Any) -> bytes:
    return await stack.client.synthesize(text, onset=onset, **{"seed": 11, **options}).read()  # type: ignore[arg-type]


async def write(stack: WholeStack, onset: str, **options: Any) -> bytes:
    fragments = one_by_one([TEXT[begin : begin + 7] for begin in range(0, len(TEXT), 7)])
    async with stack.client.streaming_synthesize(fragments, seed=11, onset=onset, **options) as speech:  # type: ignore[arg-type]
        return await speech.read()


def trimmed(natural: bytes, opening: int = 0, closing: int = 0) -> bytes:
    """Of s16le at 24 kHz: without what is quieter than -50 dBFS in front of 20 ms, and behind 100
    ms. opening, closing: samples of pauses that the text asks for around it."""
    samples = np.frombuffer(natural, "<i2")
    sound = samples[opening : len(samples) - closing]
    loud = np.flatnonzero(np.abs(sound.astype(np.int32)) > 32768 * 10 ** (-50 / 20))
    kept = sound[max(0, loud[0] - LEAD) : loud[-1] + 1 + TAIL]
    return np.concatenate([samples[:opening], kept, samples[len(samples) - closing :]]).tobytes()


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("hops", [{}, {"first_hop_tokens": 60, "growth": "exponential", "max_hop_tokens": 400}])
async def test_trimmed_is_natural_without_its_leading_and_trailing_silence(
    stack: WholeStack, voice: str, hops: dict[str, Any]
) -> None:
    natural = await say(stack, "natural", voice=voice)
    cut = await say(stack, "trimmed", voice=voice, **hops)
    assert cut == trimmed(natural)
    assert len(cut) < len(natural)


@pytest.mark.parametrize(("speed", "text"), [(0.6, TEXT), (1.7, TEXT), (1.7, SHORT)], ids=["0.6", "1.7", "1.7-short"])
async def test_at_every_speed(stack: WholeStack, speed: float, text: str) -> None:
    natural = await say(stack, "natural", text, speed=speed)
    cut = await say(stack, "trimmed", text, speed=speed)
    assert cut == trimmed(natural)
    assert len(cut) < len(natural)


@pytest.mark.parametrize(
    ("encoding", "rate"), [(Encoding.LINEAR16, 48_000), (Encoding.MULAW, 8_000), (Encoding.ALAW, 22_050)]
)
async def test_in_every_form(stack: WholeStack, encoding: Encoding, rate: int) -> None:
    """The cut is made at 24 kHz: the resampler sees what a caller at 24 kHz hears."""
    out = OutputStream(encoding, rate)
    whole = out.feed(trimmed(await say(stack, "natural"))) + out.finish()
    assert await say(stack, "trimmed", encoding=encoding, sample_rate=rate) == whole
    start = 1_001
    assert (
        await say(stack, "trimmed", encoding=encoding, sample_rate=rate, start_sample=start)
        == whole[start * encoding.bytes_per_sample :]
    )


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_of_a_text_that_is_being_written(stack: WholeStack, mode: str) -> None:
    assert await write(stack, "trimmed", mode=mode) == trimmed(await write(stack, "natural", mode=mode))


@pytest.mark.parametrize("text", [TEXT, SHORT], ids=["two", "short"])
async def test_of_a_whole_utterance(stack: WholeStack, text: str) -> None:
    natural, _, _ = await stack.client.synthesize_unary(text, seed=11, onset="natural")
    cut, header, summary = await stack.client.synthesize_unary(text, seed=11)
    assert cut == trimmed(natural)
    assert header.onset == "trimmed"
    removed = (len(natural) - len(cut)) / 48
    assert summary.removed_start_milliseconds + summary.removed_end_milliseconds == pytest.approx(removed)


async def test_pauses_of_the_text_are_kept(stack: WholeStack) -> None:
    text = f"[pause 500ms]{TEXT}[pause 300ms]"
    assert await say(stack, "trimmed", text) == trimmed(await say(stack, "natural", text), 12_000, 7_200)


@pytest.mark.parametrize("start", [1, 480, 30_001])
async def test_a_lost_connection_is_resumed_in_trimmed_samples(stack: WholeStack, start: int) -> None:
    assert await say(stack, "trimmed", start_sample=start) == (await say(stack, "trimmed"))[2 * start :]


async def test_words_move_with_the_sound(stack: WholeStack) -> None:
    natural = stack.client.synthesize(TEXT, seed=11, onset="natural")
    cut = stack.client.synthesize(TEXT, seed=11)
    await natural.read()
    _, header, _ = await heard(cut)
    earlier = header.removed_start_milliseconds / 1000
    assert earlier > 0.02
    assert [word.text for word in cut.words] == [word.text for word in natural.words]
    for word, before in zip(cut.words, natural.words, strict=True):
        assert (word.start, word.end) == pytest.approx(
            (max(0.0, before.start - earlier), max(0.0, before.end - earlier))
        )
    assert all(one.end <= other.start for one, other in itertools.pairwise(cut.words))


async def test_what_is_heard_first_is_no_later_than_its_lead_behind_the_first_byte(stack: WholeStack) -> None:
    """The first sample above -50 dBFS is 20 ms inside the first message; natural, the silence in
    front has to be played.
    """
    late = {}
    for onset in ("natural", "trimmed"):
        await say(stack, onset)
        speech: Any = stack.client.synthesize(TEXT, seed=11, onset=onset)  # type: ignore[arg-type]
        await speech.read()
        late[onset] = speech.first_audible_seconds - speech.first_byte_seconds
        assert speech.summary.first_audible_milliseconds >= speech.summary.first_sound_milliseconds
    assert 0.02 <= late["trimmed"] < late["natural"]
