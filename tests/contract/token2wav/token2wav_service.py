"""A decoder service on loopback, and the messages that the tests send to it."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc

from cosyserve.v1 import token2wav_pb2, token2wav_pb2_grpc
from services.token2wav.decoders.backend import Backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.servicer import Token2WavServicer
from tests.stacks import calls
from tests.stacks.in_process import serving as replica
from tests.unit.token2wav.speaking import batching, voice


@dataclass(frozen=True)
class Loopback:
    stub: Any
    batcher: Batcher
    backend: Backend


@contextlib.asynccontextmanager
async def serving(backend: Backend, max_streams: int = 16, idle_seconds: float = 60.0) -> AsyncIterator[Loopback]:
    async with batching(backend.decoders, max_streams=max_streams) as batcher:
        servicer = Token2WavServicer(backend.identity, batcher, idle_seconds)
        async with (
            replica("token2wav", servicer) as service,
            grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
        ):
            yield Loopback(token2wav_pb2_grpc.Token2WavServiceStub(channel), batcher, backend)


def setup(prompt: int = 0, **fields: Any) -> token2wav_pb2.DecodeSetup:
    """A valid setup; fields replace."""
    spoken = voice(prompt)
    valid = {
        "prompt_speech_tokens": spoken.tokens.tolist(),
        "prompt_mel": spoken.mel.astype("<f4").tobytes(),
        "speaker_embedding": spoken.embedding.astype("<f4").tobytes(),
    }
    return token2wav_pb2.DecodeSetup(**(valid | fields))


def begin(**fields: Any) -> token2wav_pb2.DecodeStreamRequest:
    """The first message, with `setup` of these fields."""
    return token2wav_pb2.DecodeStreamRequest(setup=setup(**fields))


async def rest(call: Any) -> list[token2wav_pb2.DecodedAudio]:
    """The messages that a partly read call still has."""
    return [response.audio for response in await calls.rest(call)]


def said(ids: list[int]) -> token2wav_pb2.DecodeStreamRequest:
    return token2wav_pb2.DecodeStreamRequest(tokens=token2wav_pb2.SpeechTokenIds(ids=ids))
