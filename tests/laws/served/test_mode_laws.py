"""The laws of prompts that travel with a request and of voice conversion, heard through all four
services with the bundled voice.
"""

from typing import Any

import pytest
import pytest_asyncio

from cosyserve.audio.wav import wav_header
from cosyserve.client.types import Prompt
from cosyserve.errors import FailedPrecondition
from tests.stacks.calls import heard, until
from tests.stacks.whole_stack import WholeStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPOKEN = "The quick brown fox jumps over the lazy dog."
TEXT = "A few words, then silence."
WHOLE = {"first_hop_tokens": 100, "growth": "exponential", "max_hop_tokens": 400}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recording(stack: WholeStack) -> bytes:
    """The bytes of a file in which the first voice speaks."""
    audio = await stack.client.synthesize(SPOKEN, seed=3, voice="af_heart", onset="natural").read()
    return wav_header(24_000, len(audio) // 2) + audio


async def convert(stack: WholeStack, recording: bytes, **options: Any) -> bytes:
    return await stack.client.convert_voice(recording, **{"seed": 11, "voice": "am_michael", **options}).read()


async def say(stack: WholeStack, **options: Any) -> bytes:
    return await stack.client.synthesize(TEXT, seed=11, **options).read()


@pytest.mark.parametrize(
    "schedule",
    [
        {"first_hop_tokens": 1, "growth": "fixed"},
        {"first_hop_tokens": 20, "growth": "exponential"},
        {"sample_rate": 44_100},
    ],
)
async def test_hops_move_the_cuts_of_a_conversion_and_never_a_sample(
    stack: WholeStack, recording: bytes, schedule: dict[str, Any]
) -> None:
    whole = await convert(stack, recording, **{**schedule, **WHOLE})
    assert await convert(stack, recording, **schedule) == whole


async def test_a_conversion_keeps_the_timing_of_the_recording(stack: WholeStack, recording: bytes) -> None:
    audio, _, summary = await heard(stack.client.convert_voice(recording, seed=11, voice="am_michael", onset="natural"))
    # At most 40 ms are lost or added at the end, though there are more than 25 tokens a second.
    assert abs(len(recording) - 44 - len(audio)) <= 2 * 960
    assert 2 * 960 * summary.speech_tokens > 1.4 * len(audio)
    assert len(await convert(stack, recording, speed=2.0, onset="natural")) == pytest.approx(len(audio) / 2, rel=0.01)
    assert audio != await convert(stack, recording, voice="af_heart")
    assert audio != await convert(stack, recording, profile="upstream")


@pytest.mark.parametrize("start", [1, 30_001])
async def test_a_lost_conversion_is_resumed_at_its_sample(stack: WholeStack, recording: bytes, start: int) -> None:
    whole, header, _ = await heard(stack.client.convert_voice(recording, seed=11, voice="am_michael"))
    again = stack.client.convert_voice(recording, seed=11, voice="am_michael", start_sample=start)
    again.request.engine = header.engine
    assert await again.read() == whole[2 * start :]


async def test_hanging_up_on_a_conversion_frees_what_it_held(stack: WholeStack, recording: bytes) -> None:
    async with stack.client.convert_voice(recording, seed=11, first_hop_tokens=1, growth="fixed") as speech:
        async for _ in speech:
            break
    await until(lambda: not stack.batcher.stats().streams, 10)
    assert stack.batcher.stats().state_bytes == 0


async def test_every_mode_of_the_bundled_voice_speaks_and_is_resumed(stack: WholeStack, recording: bytes) -> None:
    spoken = {}
    prompt = {"prompt": Prompt(recording, SPOKEN, "en")}
    for name, options in {
        "zero_shot": {"prompt_mode": "zero_shot"},
        "cross_lingual": {"prompt_mode": "cross_lingual"},
        "sft": {"prompt_mode": "sft"},
        "prompt": prompt,
        "prompt without its words": {**prompt, "prompt_mode": "cross_lingual"},
    }.items():
        spoken[name] = await say(stack, **options)
        assert len(spoken[name]) > 24_000, name
        assert await say(stack, start_sample=10_001, **options, **WHOLE) == spoken[name][2 * 10_001 :], name
    assert spoken["zero_shot"] == await say(stack)
    assert len(set(spoken.values())) == 5


async def test_a_model_without_instructions_says_so(stack: WholeStack) -> None:
    with pytest.raises(FailedPrecondition, match="follows no instructions"):
        await say(stack, instruction="Speak slowly.")
