"""What the tests of the decoder share: the golden voice and tokens, an engine, and a caller."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.interface import Decoder
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.step_runner import OnFault
from services.token2wav.stream import AcousticStream
from tests.stacks.up_process import TINY


@cache
def golden() -> Mapping[str, np.ndarray[Any, Any]]:
    with np.load(TINY / "flow_mel.npz") as arrays:
        return {name: arrays[name] for name in ("prompt_token", "prompt_feat", "spk_embedding", "token")}


def voice(prompt_tokens: int = 20, key: str = "") -> Voice:
    """The golden voice with its prompt repeated or cut to the given length."""
    arrays = golden()
    tokens = np.resize(arrays["prompt_token"], prompt_tokens).astype(np.int64)
    mel = np.resize(arrays["prompt_feat"], (2 * prompt_tokens, 80)).astype(np.float32)
    return Voice(tokens, mel, arrays["spk_embedding"][0].astype(np.float32), key)


def tokens(count: int, offset: int = 0) -> list[int]:
    """Golden tokens, repeated as needed."""
    return [int(token) for token in np.resize(np.roll(golden()["token"][0], -offset), count)]


def torch_backend(**settings: Any) -> Backend:
    return load_backend("torch", EngineSettings(model=TINY, threads=1, **settings))


@contextlib.asynccontextmanager
async def batching(
    decoders: Mapping[Profile, Decoder[Any]],
    max_streams: int = 16,
    state_bytes: int = 1 << 40,
    reserve_tokens: int = 0,
    on_fault: OnFault | None = None,
    hold_seconds: float | None = None,
) -> AsyncIterator[Batcher]:
    limits = Limits(max_streams=max_streams, state_bytes=state_bytes, reserve_tokens=reserve_tokens)
    batcher = Batcher(decoders, limits, on_fault, hold_seconds=hold_seconds)
    try:
        yield batcher
    finally:
        await asyncio.to_thread(batcher.close)


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until `true` returns True; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.001)


async def pieces(batcher: Batcher, sentence: Sentence, spoken: list[int], message: int = 1000) -> list[HopAudio]:
    """All pieces of a sentence whose tokens are fed `message` at a time while the audio is read."""

    async def feed(stream: AcousticStream) -> None:
        for at in range(0, len(spoken), message):
            await stream.feed(spoken[at : at + message])
            await asyncio.sleep(0)
        await stream.finish()

    try:
        async with AcousticStream(batcher, sentence) as stream, asyncio.TaskGroup() as group:
            group.create_task(feed(stream))
            return [piece async for piece in stream]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def speak(batcher: Batcher, sentence: Sentence, spoken: list[int], message: int = 1000) -> bytes:
    """The audio of a sentence; the pieces are checked to lie without gap or repeat."""
    made = await pieces(batcher, sentence, spoken, message)
    place = sentence.start_sample
    for piece in made:
        if piece.samples.size:
            assert piece.start_sample == place
            place += piece.samples.size
    assert [piece.last for piece in made] == [False] * (len(made) - 1) + [True]
    return b"".join(piece.audio for piece in made)
