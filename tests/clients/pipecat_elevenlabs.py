"""Pipecat's services for ElevenLabs in a pipeline: a reply of a language model spoken while it is
being written, with words and their times, sentence by sentence and token by token; an interruption.
"""

import asyncio
from collections.abc import Sequence

import aiohttp
from calls import Calls, address
from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.workers.runner import WorkerRunner

FIRST, SECOND = ["Your", " table", " is", " booked", " for", " 7."], [" Please", " call", " us", "."]
VOICE = "21m00Tcm4TlvDq8ikWAM"
PATIENCE = 60.0
"""Seconds without audio after which a context is over; a machine that is busy with others needs
more than Pipecat's 3.
"""
LONG = "This sentence is interrupted long before its end, because somebody begins to talk over it. "


class Listener(FrameProcessor):
    """At the end of the pipeline: keeps what is heard, says when some has come."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[TTSAudioRawFrame] = []
        self.words: list[TTSTextFrame] = []
        self.errors: list[ErrorFrame] = []
        self.audio, self.over = asyncio.Event(), asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame) and frame.audio:
            self.heard.append(frame)
            self.audio.set()
        elif isinstance(frame, TTSTextFrame):
            self.words.append(frame)
        elif isinstance(frame, TTSStoppedFrame):
            self.over.set()
        await self.push_frame(frame, direction)

    @property
    def seconds(self) -> float:
        return sum(len(frame.audio) / 2 / frame.sample_rate for frame in self.heard)


class Spoken:
    """A pipeline of a service and a listener, while the block runs."""

    def __init__(self, service: TTSService) -> None:
        self.listener = Listener()
        self.worker = PipelineWorker(Pipeline([service, self.listener]), cancel_on_idle_timeout=False)
        self._runner = WorkerRunner(handle_sigint=False)

    async def __aenter__(self) -> "Spoken":
        @self.worker.event_handler("on_pipeline_error")
        async def keep(_: PipelineWorker, frame: ErrorFrame) -> None:
            self.listener.errors.append(frame)

        await self._runner.add_workers(self.worker)
        self._running = asyncio.create_task(self._runner.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.worker.queue_frame(EndFrame())
        await asyncio.wait_for(self._running, 120)


async def reply(spoken: Spoken, *, early: bool) -> None:
    """A reply of a language model. early: its second sentence is written when some of the first one
    is heard.
    """
    listener, tokens = spoken.listener, [*FIRST, SECOND[0]]
    await spoken.worker.queue_frames([LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens)])
    if early:
        await asyncio.wait_for(listener.audio.wait(), 60)
    await spoken.worker.queue_frames([*map(LLMTextFrame, SECOND[1:]), LLMFullResponseEndFrame()])
    await asyncio.wait_for(listener.over.wait(), 60)


def check(listener: Listener) -> str:
    assert not listener.errors, listener.errors
    assert {frame.sample_rate for frame in listener.heard} == {24_000}
    text = " ".join(frame.text.strip() for frame in listener.words)
    assert text == "Your table is booked for 7. Please call us.", text
    times = [frame.pts for frame in listener.words]
    assert times == sorted(times), times
    span = (times[-1] - times[0]) / 1e9
    assert listener.seconds / 2 < span < listener.seconds, (span, listener.seconds)
    return f"{listener.seconds:.1f} s, {len(times)} words, the last one {span:.1f} s behind the first"


def websocket(url: str, mode: TextAggregationMode) -> ElevenLabsTTSService:
    settings = ElevenLabsTTSService.Settings(voice=VOICE)
    return ElevenLabsTTSService(
        api_key="none",
        url=url.replace("http", "ws", 1),
        settings=settings,
        text_aggregation_mode=mode,
        stop_frame_timeout_s=PATIENCE,
    )


def http(url: str, session: aiohttp.ClientSession, voice: str = VOICE) -> ElevenLabsHttpTTSService:
    settings = ElevenLabsHttpTTSService.Settings(voice=voice)
    return ElevenLabsHttpTTSService(
        api_key="none", base_url=url, aiohttp_session=session, settings=settings, stop_frame_timeout_s=PATIENCE
    )


async def interrupted(url: str) -> str:
    """Somebody talks over the reply; the next one is spoken."""
    async with Spoken(websocket(url, TextAggregationMode.SENTENCE)) as spoken:
        listener = spoken.listener
        frames: Sequence[Frame] = [LLMFullResponseStartFrame(), LLMTextFrame(LONG * 4), LLMFullResponseEndFrame()]
        await spoken.worker.queue_frames(frames)
        await asyncio.wait_for(listener.audio.wait(), 60)
        await spoken.worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(0.5)
        heard = listener.seconds
        listener.heard.clear()
        listener.words.clear()
        listener.over.clear()
        await reply(spoken, early=False)
        check(listener)
    assert heard < 15, heard
    return f"{heard:.1f} s heard before"


async def main() -> None:
    logger.remove()
    url, calls = address(), Calls.of("pipecat-ai")
    for mode in (TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN):
        name = f"ElevenLabsTTSService, text by {mode.value}, heard before the text is complete, words with times"
        with calls.tried(name) as found:
            async with Spoken(websocket(url, mode)) as spoken:
                await reply(spoken, early=True)
                found.append(check(spoken.listener))
    with calls.tried("ElevenLabsTTSService, interrupted, then another reply") as found:
        found.append(await interrupted(url))
    with calls.tried("ElevenLabsHttpTTSService, words with times") as found:
        async with aiohttp.ClientSession() as session, Spoken(http(url, session)) as spoken:
            await reply(spoken, early=False)
            found.append(check(spoken.listener))
    with calls.tried("ElevenLabsHttpTTSService, a voice that does not exist: ErrorFrame") as found:
        async with aiohttp.ClientSession() as session, Spoken(http(url, session, "nobody")) as spoken:
            await spoken.worker.queue_frame(TTSSpeakFrame("Nothing is heard."))
            async with asyncio.timeout(60):
                while not spoken.listener.errors:
                    await asyncio.sleep(0.1)
            assert "voice_not_found" in spoken.listener.errors[0].error
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
