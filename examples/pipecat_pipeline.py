# /// script
# requires-python = ">=3.11"
# dependencies = ["pipecat-ai[openai]==1.14.0"]
# ///
"""A Pipecat pipeline that speaks two sentences into a file; put a transport in place of the
recorder, and a recogniser and an LLM in front, for a conversation. Run by `make clients`.

    pip install "pipecat-ai[openai]==1.14.0"
    python examples/pipecat_pipeline.py
"""

import asyncio
import os
import wave

from pipecat.frames.frames import EndFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.audio.audio_buffer_processor import AudioBufferProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner


async def main() -> None:
    address = os.environ.get("COSYSERVE_URL", "http://127.0.0.1:8080")
    voice = OpenAITTSService(base_url=f"{address}/v1", api_key="none", settings=OpenAITTSService.Settings(voice="nova"))
    recorder = AudioBufferProcessor(sample_rate=24_000, auto_start_recording=True)

    @recorder.event_handler("on_audio_data")
    async def write(_: AudioBufferProcessor, audio: bytes, sample_rate: int, channels: int) -> None:
        with wave.open("pipeline.wav", "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(sample_rate)
            file.writeframes(audio)

    worker = PipelineWorker(Pipeline([voice, recorder]))
    runner = WorkerRunner()
    await runner.add_workers(worker)
    await worker.queue_frames([TTSSpeakFrame("Your table is booked."), TTSSpeakFrame("See you at seven."), EndFrame()])
    await runner.run()


if __name__ == "__main__":
    asyncio.run(main())
