"""LiveKit's plugin for OpenAI: its TTS in the formats it asks for, as audio and as events, a
refusal, and the example of an agent, in a session that has a sink for audio in place of a room.
"""

import asyncio
import importlib.util
import logging
import os
from pathlib import Path

from calls import Calls, Refused, address
from livekit import rtc
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.agents.voice.avatar import QueueAudioOutput
from livekit.plugins import openai

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "livekit_agent.py"
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


async def greeting() -> float:
    """Seconds of audio of what the agent of the example says when its session begins."""
    spec = importlib.util.spec_from_file_location("livekit_agent", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    session, sink = example.session(), QueueAudioOutput(sample_rate=24_000)
    session.output.audio = sink
    await session.start(example.Host(), record=False)
    seconds = 0.0
    try:
        async with asyncio.timeout(90):
            async for frame in sink:
                if not isinstance(frame, rtc.AudioFrame):
                    break
                seconds += frame.duration
        sink.notify_playback_finished(seconds, interrupted=False)
    finally:
        await session.aclose()
    return seconds


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
    with calls.tried("AgentSession of examples/livekit_agent.py, its greeting") as found:
        os.environ["COSYSERVE_URL"] = url.removesuffix("/v1")
        seconds = await greeting()
        assert 1.0 < seconds < 6.0, f"{seconds:.2f} s of audio"
        found.append(f"{seconds:.1f} s heard")
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
