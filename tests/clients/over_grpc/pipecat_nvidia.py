"""Pipecat's NvidiaTTSService in a pipeline, at a server of Riva's contract on the orchestrator's
port: sentence by sentence, a whole turn in one stream, like a recording, interrupted.
"""

import argparse
import asyncio
import tempfile
import wave
from pathlib import Path
from typing import Any

from calls import Calls
from loguru import logger
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)
from pipecat.services.nvidia.tts import NvidiaTTSService, NvidiaTTSSynthesisMode
from pipecat_elevenlabs import LONG, PATIENCE, Listener, Spoken

TOKENS = ["Your", " table", " is", " booked", " for", " 7.", " Please", " call", " us", "."]
SECONDS = 120


def service(address: str, mode: str = "per_sentence", voice: str | None = None, **options: Any) -> NvidiaTTSService:
    """As its users point it at a server of their own; without a voice it asks for the one of
    NVIDIA's that is its default.
    """
    settings: dict[str, Any] = {"synthesis_mode": NvidiaTTSSynthesisMode(mode)}
    if voice is not None:
        settings["voice"] = voice
    return NvidiaTTSService(
        server=address,
        use_ssl=False,
        settings=NvidiaTTSService.Settings(**settings),
        stop_frame_timeout_s=PATIENCE,
        **options,
    )


async def reply(listener: Listener, spoken: Spoken) -> None:
    frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, TOKENS), LLMFullResponseEndFrame()]
    await spoken.worker.queue_frames(frames)
    await asyncio.wait_for(listener.over.wait(), SECONDS)


def check(listener: Listener) -> str:
    assert not listener.errors, listener.errors
    assert {frame.sample_rate for frame in listener.heard} == {24_000}
    assert 1.5 < listener.seconds < 10, listener.seconds
    return f"{listener.seconds:.1f} s"


async def in_a_pipeline(calls: Calls, what: str, made: NvidiaTTSService) -> Listener:
    listener = Listener()
    with calls.tried(what) as found:
        async with Spoken(made) as spoken:
            listener = spoken.listener
            await reply(listener, spoken)
            found.append(check(listener))
    return listener


async def interrupted(address: str) -> str:
    """Somebody talks over the reply; the next one is spoken."""
    async with Spoken(service(address, "stitched")) as spoken:
        listener = spoken.listener
        frames = [LLMFullResponseStartFrame(), LLMTextFrame(LONG * 4), LLMFullResponseEndFrame()]
        await spoken.worker.queue_frames(frames)
        await asyncio.wait_for(listener.audio.wait(), SECONDS)
        await spoken.worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(0.5)
        heard = listener.seconds
        listener.heard.clear()
        listener.over.clear()
        await reply(listener, spoken)
        check(listener)
    assert heard < 15, heard
    return f"{heard:.1f} s heard before"


async def main() -> None:
    logger.remove()
    parser = argparse.ArgumentParser()
    parser.add_argument("grpc", help="host:port of the orchestrator")
    address: str = parser.parse_args().grpc
    calls = Calls.of("pipecat-ai")
    listener = await in_a_pipeline(calls, "NvidiaTTSService, per sentence, its own default voice", service(address))
    await in_a_pipeline(calls, "NvidiaTTSService, one stream for a turn", service(address, "stitched"))
    made = service(address, "stitched", "cosyserve.af_heart", custom_dictionary={"table": "ˈteɪ.bəl"})
    await in_a_pipeline(calls, "NvidiaTTSService, a voice of the server, a dictionary", made)
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.wav"
        with wave.open(str(prompt), "wb") as file:
            file.setparams((1, 2, 24_000, 0, "NONE", ""))
            file.writeframes(b"".join(frame.audio for frame in listener.heard))
        made = service(address, "stitched", zero_shot_audio_prompt_file=prompt)
        await in_a_pipeline(calls, "NvidiaTTSService, a recording to speak like", made)
    with calls.tried("NvidiaTTSService, interrupted, then another reply") as found:
        found.append(await interrupted(address))
    with calls.tried("NvidiaTTSService, a voice that does not exist: ErrorFrame"):
        async with Spoken(service(address, voice="nobody")) as spoken:
            await spoken.worker.queue_frame(TTSSpeakFrame("Nothing is heard."))
            async with asyncio.timeout(SECONDS):
                while not spoken.listener.errors:
                    await asyncio.sleep(0.1)
            assert "nobody" in spoken.listener.errors[0].error
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
