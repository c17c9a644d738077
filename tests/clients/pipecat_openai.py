"""Pipecat's service for OpenAI in a pipeline: sentences spoken one after another, an interruption,
a refusal.
"""

import asyncio

from calls import Calls, address
from loguru import logger
from pipecat.frames.frames import EndFrame, ErrorFrame, Frame, InterruptionFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner

LONG = "This sentence is interrupted long before its end, because somebody begins to talk over it. " * 4


class Listener(FrameProcessor):
    """At the end of the pipeline: keeps the audio, says when some has come."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[TTSAudioRawFrame] = []
        self.errors: list[ErrorFrame] = []
        self.audio = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.heard.append(frame)
            self.audio.set()
        await self.push_frame(frame, direction)

    @property
    def seconds(self) -> float:
        return sum(len(frame.audio) / 2 / frame.sample_rate for frame in self.heard)


async def run(url: str, *frames: Frame, voice: str = "nova", interrupt: bool = False) -> Listener:
    """A pipeline of the service and a listener. interrupt: as soon as something is heard."""
    listener = Listener()
    service = OpenAITTSService(base_url=url, api_key="none", settings=OpenAITTSService.Settings(voice=voice, speed=1.1))
    worker = PipelineWorker(Pipeline([service, listener]), cancel_on_idle_timeout=False)

    @worker.event_handler("on_pipeline_error")
    async def keep(_: PipelineWorker, frame: ErrorFrame) -> None:
        listener.errors.append(frame)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await worker.queue_frames(frames)
    if interrupt:
        await asyncio.wait_for(listener.audio.wait(), 60)
        await worker.queue_frame(InterruptionFrame())
    await worker.queue_frame(EndFrame())
    await asyncio.wait_for(running, 120)
    return listener


async def main() -> None:
    logger.remove()
    url, calls = f"{address()}/v1", Calls.of("pipecat-ai")
    with calls.tried("OpenAITTSService, two sentences in a pipeline") as found:
        listener = await run(url, TTSSpeakFrame("Your table is booked."), TTSSpeakFrame("See you at seven."))
        assert not listener.errors, listener.errors
        assert {frame.sample_rate for frame in listener.heard} == {24_000}
        assert 1.5 < listener.seconds < 6.0, f"{listener.seconds:.2f} s of audio"
        found.append(f"{listener.seconds:.1f} s")
    with calls.tried("OpenAITTSService, interrupted") as found:
        listener = await run(url, TTSSpeakFrame(LONG), interrupt=True)
        assert 0 < listener.seconds < 15, f"{listener.seconds:.2f} s of audio"
        found.append(f"{listener.seconds:.1f} s heard")
    with calls.tried("a speed that is not allowed: ErrorFrame"):
        service = OpenAITTSService(base_url=url, api_key="none", settings=OpenAITTSService.Settings(speed=9.0))
        frames = [frame async for frame in service.run_tts("Too fast.", "context")]
        assert isinstance(frames[-1], ErrorFrame), frames
        assert "speed" in frames[-1].error
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
