"""The example of a LiveKit agent in a session of its own: what it says is heard by a sink for audio
in place of a room.
"""

import asyncio
import importlib.util
import logging
import os
from pathlib import Path

from calls import Calls, address
from livekit import rtc
from livekit.agents.voice.avatar import QueueAudioOutput

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "livekit_agent.py"


async def heard() -> float:
    """Seconds of audio of the greeting."""
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
    os.environ["COSYSERVE_URL"], calls = address(), Calls.of("livekit-agents")
    with calls.tried("AgentSession.say, in the session of examples/livekit_agent.py") as found:
        seconds = await heard()
        assert 1.0 < seconds < 6.0, f"{seconds:.2f} s of audio"
        found.append(f"{seconds:.1f} s heard")
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
