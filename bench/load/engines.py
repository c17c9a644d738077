"""Both engines of a model directory in this process, without the services around them: what a batch
or a length costs.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cosyserve.errors import ModelError
from cosyserve.load.player import BYTES_PER_SAMPLE
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLE_RATE, SPEECH_VOCABULARY, TOKENS_PER_SECOND
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.llm.backends.torch_backend import TorchBackend
from services.llm.generation.request import Generation, Grouping, Prompt, Sampling
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.stream import AcousticStream, warm_up

MOST_POSITIONS = 1024
_PROMPTED = (
    "prompt_text",
    "llm_prompt_speech_token",
    "flow_prompt_speech_token",
    "prompt_speech_feat",
    "flow_embedding",
)
"""Fields of a voice with a prompt."""


@dataclass(frozen=True)
class Speaker:
    """A voice of `spk2info.pt`: what the speech-token model and token2wav know of it."""

    prompt: Prompt
    voice: Voice

    @classmethod
    def first_of(cls, model: Path) -> "Speaker":
        """The first one with a prompt whose transcript is in ids: speaker vectors alone, and the
        layout of the Triton runtime, have none. Raises ModelError without one.
        """
        path = model / "spk2info.pt"
        entries = torch.load(path, weights_only=True) if path.exists() else {}
        usable = [one for one in entries.values() if all(isinstance(one.get(name), torch.Tensor) for name in _PROMPTED)]
        if not usable:
            raise ModelError(f"{path}: no voice has {', '.join(_PROMPTED)}, which this measurement speaks with")
        entry = usable[0]
        text, tokens = entry["prompt_text"][0].tolist(), entry["llm_prompt_speech_token"][0].tolist()
        mel, embedding = entry["prompt_speech_feat"][0].numpy(), entry["flow_embedding"][0].numpy()
        key = hashlib.sha256(mel.tobytes()).hexdigest()
        flow_tokens = entry["flow_prompt_speech_token"][0].numpy().astype(np.int64)
        return cls(
            Prompt(tuple(text), tuple(tokens)),
            Voice(flow_tokens, mel.astype(np.float32), embedding.astype(np.float32), key),
        )


def text_ids(model: Path, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Each text as one sentence."""
    analyzer = Analyzer(Normalizer(WeText()), read_tokenizer(ModelDirectory(model)))
    return [tuple(number for sentence in analyzer.sentences(text) for number in sentence.token_ids) for text in texts]


@asynccontextmanager
async def speech_tokens(model: Path, device: str, engine: str, most: int) -> AsyncIterator[TorchBackend]:
    """The speech-token model for `most` sentences at once, warmed up. engine: as gpu_engine in its
    settings; of no meaning on a CPU.
    """
    settings = LlmSettings(
        listen="127.0.0.1:0",
        model=model,
        device=device,
        gpu_engine=engine,
        max_sequences=most,
        max_waiting=most,
        max_positions=MOST_POSITIONS,
    )
    backend = await asyncio.to_thread(TorchBackend.load, settings)
    try:
        await backend.warm_up()
        yield backend
    finally:
        await backend.close()


async def generated(
    backend: TorchBackend, prompt: Prompt, ids: tuple[int, ...], seed: int, look: Callable[[], None] | None = None
) -> list[int]:
    """All speech tokens of one sentence. look: called at every token, while the engine still holds
    the sentence.
    """
    grouping = Grouping(first=1, rest=1) if look else Grouping()
    generation = Generation(prompt=prompt, text=ids, sampling=Sampling(seed=seed), grouping=grouping)
    tokens: list[int] = []
    async with contextlib.aclosing(backend.generate(generation)) as hops:
        async for hop in hops:
            tokens += hop.tokens
            if look:
                look()
    return tokens


async def sound_engine(model: Path, device: str, engine: str, state_bytes: int) -> Backend:
    """token2wav. engine: `paged` with the windowed vocoder, or `readable`; of no meaning on a
    CPU.
    """
    vocoder = "windowed" if engine == "paged" else "readable"
    settings = EngineSettings(
        model=model, device=device, gpu_engine=engine, gpu_vocoder=vocoder, state_bytes=state_bytes
    )
    return await asyncio.to_thread(load_backend, "torch", settings)


@asynccontextmanager
async def batcher(backend: Backend, state_bytes: int, most: int = 64) -> AsyncIterator[Batcher]:
    """Warmed up; its counts begin at nothing."""
    running = Batcher(backend.decoders, Limits(max_streams=most, state_bytes=state_bytes, reserve_tokens=25))
    try:
        await warm_up(running)
        yield running
    finally:
        await asyncio.to_thread(running.close)


@dataclass(frozen=True)
class Spoken:
    """Of one sentence whose tokens are all there. audio: its seconds. first, wall: seconds until
    the first audio and until the end. cpu: seconds of all threads of this process meanwhile.
    """

    audio: float
    first: float
    wall: float
    cpu: float


async def spoken(
    batcher: Batcher, voice: Voice, tokens: Sequence[int], seed: int = 0, profile: Profile = Profile.CONTINUOUS
) -> Spoken:
    size, first = 0, None
    async with AcousticStream(batcher, Sentence(voice, profile=profile, seed=seed)) as stream:
        began, cpu = time.perf_counter(), time.process_time()
        await stream.feed(list(tokens))
        await stream.finish()
        async for piece in stream:
            size += len(piece.audio)
            if first is None and size:
                first = time.perf_counter() - began
    wall = time.perf_counter() - began
    audio = size / BYTES_PER_SAMPLE / SAMPLE_RATE
    return Spoken(audio, wall if first is None else first, wall, time.process_time() - cpu)


def random_tokens(seconds: int, seed: int = 0) -> list[int]:
    """Speech tokens of so many seconds."""
    ids: list[int] = np.random.default_rng(seed).integers(0, SPEECH_VOCABULARY, seconds * TOKENS_PER_SECOND).tolist()
    return ids
