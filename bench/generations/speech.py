"""A sentence of a fixed length through both engines of a model, without the services around them:
the speech-token model hands its tokens over while it makes them, as the orchestrator lets it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.engines import Speaker, batcher, generated, speech_tokens
from cosyserve.load.player import BYTES_PER_SAMPLE
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, SAMPLE_RATE, TOKENS_PER_SECOND
from services.llm.backends.torch_backend import TorchBackend
from services.llm.generation.config import read_config
from services.llm.generation.request import Generation, Grouping, Sampling
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.stream import AcousticStream

TEXT = tuple(range(20, 45))
"""Text ids that both tokenizers have; random weights do not care what they say."""
NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Utterance:
    """Seconds. first: until the first audio. wall: until the end. cpu: of all threads of this
    process. audio: of sound.
    """

    first: float
    wall: float
    cpu: float
    audio: float


class Talker:
    """Both engines of one model, whose sentences never end before their length limit."""

    def __init__(self, model: Path, llm: TorchBackend, sound: Batcher) -> None:
        self._llm, self._sound, self._speaker = llm, sound, Speaker.first_of(model)
        self.tokens = read_config(ModelDirectory(model)).lengths.longest(len(TEXT))
        """Of every sentence."""
        self.prompt_tokens = len(self._speaker.voice.tokens)
        """That token2wav receives."""
        self.first_tokens = schedule(Profile.CONTINUOUS, self.prompt_tokens, Hops()).needed(None)
        """That are generated before the first hop is computed."""

    @property
    def seconds(self) -> float:
        """Of sound of every sentence."""
        return self.tokens / TOKENS_PER_SECOND

    async def speak(self, seed: int) -> Utterance:
        """One sentence, all work included. Raises RuntimeError for one that ended early."""
        size, first = 0, 0.0
        sentence = Sentence(self._speaker.voice, profile=Profile.CONTINUOUS, seed=seed)
        began, cpu = time.perf_counter(), time.process_time()
        async with AcousticStream(self._sound, sentence) as stream, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed(stream, seed))
            async for piece in stream:
                if piece.audio and not size:
                    first = time.perf_counter() - began
                size += len(piece.audio)
        wall, audio = time.perf_counter() - began, size / BYTES_PER_SAMPLE / SAMPLE_RATE
        if audio != self.seconds:
            raise RuntimeError(f"a sentence has {audio:g} s of sound, expected {self.seconds:g}")
        return Utterance(first, wall, time.process_time() - cpu, audio)

    async def token_seconds(self, seed: int) -> float:
        """Wall time of a token of the speech-token model alone, its prompt included."""
        began = time.perf_counter()
        made = await generated(self._llm, self._speaker.prompt, TEXT, seed)
        return (time.perf_counter() - began) / len(made)

    async def _feed(self, stream: AcousticStream, seed: int) -> None:
        asked = Generation(
            prompt=self._speaker.prompt,
            text=TEXT,
            sampling=Sampling(seed=seed),
            grouping=Grouping(first=self.first_tokens, rest=CHUNK_TOKENS),
        )
        async with aclosing(self._llm.generate(asked)) as hops:
            async for hop in hops:
                if hop.tokens:
                    await stream.feed(hop.tokens)
        await stream.finish()


@asynccontextmanager
async def talker(model: Path, threads: int) -> AsyncIterator[Talker]:
    """Both engines on the CPU, warmed up. threads: of one operation of token2wav."""
    settings = EngineSettings(model=model, threads=threads, prompt_cache_bytes=NO_LIMIT)
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(speech_tokens(model, "cpu", "auto", 1))
        backend = await asyncio.to_thread(load_backend, "torch", settings)
        sound = await stack.enter_async_context(batcher(backend, NO_LIMIT, most=1))
        yield Talker(model, llm, sound)
