"""The same first pass through the service over gRPC, with tokens that are fed from here: no
speech-token model takes part.
"""

import asyncio
import signal
import time
from typing import Any

import grpc
import numpy as np

from bench.gpu.sharing.passes import PROMPT
from bench.gpu.sharing.worker import START_SECONDS, STOP_SECONDS, WorkerFailed
from cosyserve.host.supervision.child import Child, exit_text
from cosyserve.host.supervision.layout import ProcessSpec
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, SPEAKER_DIMENSION, SPEECH_VOCABULARY
from cosyserve.v1 import token2wav_pb2, token2wav_pb2_grpc

FIRST = -PROMPT % CHUNK_TOKENS + LOOKAHEAD_TOKENS
"""Tokens with which the first pass can begin."""
REST = 12
"""Tokens that end the sentence when the first sound is there."""
WARM = 3
SENTENCE_SECONDS = 20.0
"""A sentence that takes longer has ended."""


class Service:
    """The service as a child process. Made by `start`; `close` ends it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = asyncio.create_task(child.ended())

    @classmethod
    async def start(cls, place: ProcessSpec) -> "Service":
        """Raises WorkerFailed when it ends instead of serving, or takes too long."""
        child = await Child.start(f"services.{place.service}", place.label, place.address, place.environ, print)
        service, serving = cls(child), asyncio.create_task(child.until_serving())
        try:
            done, _ = await asyncio.wait(
                (service._ended, serving), timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if serving not in done:
                code = service._ended.result() if done else None
                reason = f"did not serve within {START_SECONDS:g} s" if code is None else exit_text(code)
                raise WorkerFailed(f"{place.label} {reason}")
        except BaseException:
            await service.close()
            raise
        finally:
            serving.cancel()
        return service

    async def first_passes(self, seconds: float) -> dict[str, list[float]]:
        async with grpc.aio.insecure_channel(self._child.address) as channel:
            return await first_passes(token2wav_pb2_grpc.Token2WavServiceStub(channel), seconds)

    async def close(self) -> None:
        self._child.send(signal.SIGTERM)
        await asyncio.wait((self._ended,), timeout=STOP_SECONDS)
        self._child.send(signal.SIGKILL)
        await self._ended


async def first_passes(stub: Any, seconds: float, least: int = 20) -> dict[str, list[float]]:
    """Milliseconds of sentences one after the other, their prompt kept: "flow" and "vocoder" until
    the first sound, as the service reports them, and "sound", from the tokens to the first sound at
    this caller. Raises WorkerFailed for a sentence that fails."""
    setup, draw = _setup(), np.random.default_rng(3)
    times: dict[str, list[float]] = {"flow": [], "vocoder": [], "sound": []}
    began = time.perf_counter()
    for number in range(10**6):
        if number >= WARM + least and time.perf_counter() - began > seconds:
            break
        tokens = [int(token) for token in draw.integers(0, SPEECH_VOCABULARY, FIRST + REST)]
        one = await _first_pass(stub, setup, tokens)
        if number >= WARM:
            for name, value in one.items():
                times[name].append(value)
    return times


async def _first_pass(stub: Any, setup: token2wav_pb2.DecodeSetup, tokens: list[int]) -> dict[str, float]:
    call = stub.DecodeStream(timeout=SENTENCE_SECONDS)
    try:
        summary, sound = await _spoken(call, setup, tokens)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:  # the call had ended when it was written to
        raise WorkerFailed(f"a sentence ended with {(await call.code()).name}: {await call.details()}") from error
    return {"flow": summary.first_flow_milliseconds, "vocoder": summary.first_vocoder_milliseconds, "sound": sound}


async def _spoken(call: Any, setup: token2wav_pb2.DecodeSetup, tokens: list[int]) -> tuple[Any, float]:
    """What the service says of a sentence, and milliseconds from its first tokens to the first
    sound.
    """
    await call.write(token2wav_pb2.DecodeStreamRequest(setup=setup))
    await call.initial_metadata()
    began, sound = time.perf_counter(), 0.0
    await call.write(_said(tokens[:FIRST]))
    summary = None
    while (response := await call.read()) is not grpc.aio.EOF:
        if response.audio.audio and not sound:
            sound = 1000 * (time.perf_counter() - began)
            await call.write(_said(tokens[FIRST:]))
            await call.done_writing()
        if response.audio.HasField("summary"):
            summary = response.audio.summary
    if summary is None:
        raise WorkerFailed("a sentence ended without a summary")
    return summary, sound


def _said(ids: list[int]) -> token2wav_pb2.DecodeStreamRequest:
    return token2wav_pb2.DecodeStreamRequest(tokens=token2wav_pb2.SpeechTokenIds(ids=ids))


def _setup() -> token2wav_pb2.DecodeSetup:
    """A voice that no other caller uses; its prompt is cached from the first sentence on."""
    draw = np.random.default_rng(1)
    return token2wav_pb2.DecodeSetup(
        prompt_speech_tokens=[int(token) for token in draw.integers(0, SPEECH_VOCABULARY, PROMPT)],
        prompt_mel=draw.standard_normal((2 * PROMPT, 80)).astype("<f4").tobytes(),
        speaker_embedding=draw.standard_normal(SPEAKER_DIMENSION).astype("<f4").tobytes(),
        voice_hash="sharing",
    )
