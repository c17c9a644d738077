"""LiveKit's plugin for OpenAI: its TTS in the formats it asks for, as audio and as events, and a
refusal.
"""

import asyncio
import logging

from calls import Calls, Refused, address
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import openai

TEXT = "Your table is booked for seven in the evening."
PATIENT = APIConnectOptions(max_retry=8, retry_interval=2.0)
"""A machine with two cores refuses while it is busy with others."""
_EVENTS, _AUDIO = "gpt-4o-mini-tts", "tts-1"
"""The plugin asks for server-sent events, but for plain audio of OpenAI's older models."""


async def spoken(url: str, model: str, response_format: str, voice: str = "nova") -> float:
    """Seconds of audio that the framework got to play."""
    service = openai.TTS(model=model, voice=voice, base_url=url, api_key="none", response_format=response_format)
    try:
        async with service.synthesize(TEXT, conn_options=PATIENT) as stream:
            frames = [event.frame async for event in stream]
    finally:
        await service.aclose()
    assert {(frame.sample_rate, frame.num_channels) for frame in frames} == {(24_000, 1)}
    return sum(frame.duration for frame in frames)


async def refused(url: str) -> None:
    with Refused(APIStatusError) as refusal:
        await spoken(url, _EVENTS, "pcm", voice="nobody")
    assert refusal.error.status_code == 404
    assert not refusal.error.retryable


async def main() -> None:
    logging.disable()
    url, calls = f"{address()}/v1", Calls.of("livekit-plugins-openai")
    for model, way in ((_EVENTS, "events"), (_AUDIO, "audio")):
        for name in ("pcm", "mp3", "opus", "wav"):
            with calls.tried(f"TTS.synthesize, {name}, as {way}") as found:
                seconds = await spoken(url, model, name)
                assert 1.0 < seconds < 6.0, f"{seconds:.2f} s of audio"
                found.append(f"{seconds:.1f} s played")
    with calls.tried("a voice that does not exist: APIStatusError"):
        await refused(url)
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
