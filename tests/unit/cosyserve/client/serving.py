"""A server of the public endpoint whose behaviour a test gives, what it says unless a test says
otherwise, and a client of it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from cosyserve import errors
from cosyserve.client import AsyncClient
from cosyserve.rpc.server import ServerSettings, running
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, voice_pb2
from cosyserve.v1.synthesis_pb2_grpc import SynthesisServiceServicer
from tests.unit.cosyserve.rpc.small_service import NAME, loading

SETTINGS = ServerSettings(listen="127.0.0.1:0", drain_seconds=0)


@contextlib.asynccontextmanager
async def serving(servicer: SynthesisServiceServicer) -> AsyncIterator[AsyncClient]:
    """A client of `servicer` while the block runs."""
    async with (
        running(NAME, SETTINGS, loading(servicer)) as service,
        AsyncClient(f"127.0.0.1:{service.port}") as client,
    ):
        yield client


WHOLE = bytes(range(200))
RESPONSE = synthesis_pb2.SynthesizeResponse
SUMMARY = synthesis_pb2.SynthesisSummary(
    audio_seconds=2.5,
    first_sound_milliseconds=40,
    real_time_factor=0.5,
    sentences=2,
    speech_tokens=60,
    resumptions=1,
    first_sound=synthesis_pb2.StageMilliseconds(frontend=1, llm_prefill=2, llm_decode=3, flow=4, vocoder=5),
    total=synthesis_pb2.StageMilliseconds(frontend=1, llm_prefill=2, llm_decode=30, flow=40, vocoder=50),
)
Answer = Callable[[synthesis_pb2.SynthesizeRequest, Any], AsyncIterator[Any]]


def header_of(request: Any) -> synthesis_pb2.SynthesisHeader:
    return synthesis_pb2.SynthesisHeader(
        seed=request.seed if request.HasField("seed") else 77,
        voice=request.voice or "narrator",
        audio_format=request.audio_format,
        profile=request.profile,
    )


def speech_of(request: Any, audio: bytes = WHOLE) -> list[Any]:
    """The messages of a well-behaved server for `audio` in four pieces, from request.start_sample
    on.
    """
    width = 2 if request.audio_format.encoding == audio_pb2.AUDIO_ENCODING_LINEAR16 else 1
    piece = len(audio) // 4
    messages = [
        RESPONSE(audio=audio[at : at + piece], chunk_index=i, start_sample=at // width)
        for i, at in enumerate(range(request.start_sample * width, len(audio), piece))
    ]
    messages.append(RESPONSE(chunk_index=len(messages), start_sample=len(audio) // width, summary=SUMMARY))
    messages[0].header.CopyFrom(header_of(request))
    return messages


class Door(SynthesisServiceServicer):
    """Answers the n-th call with the n-th answer, and the last one from then on."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.setups: list[Any] = []
        self.texts: list[str] = []

    async def Synthesize(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        async for message in self.answers[min(len(self.requests), len(self.answers)) - 1](request, context):
            yield message

    ConvertVoice = Synthesize

    async def StreamingSynthesize(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for request in request_iterator:
            self.texts.append(request.text)
            if request.HasField("setup"):
                await context.send_initial_metadata(())
                self.setups.append(request.setup)
        for message in speech_of(self.setups[-1].request):
            yield message

    async def SynthesizeUnary(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        header = synthesis_pb2.SynthesisHeader(
            seed=5, voice="v", audio_format=request.audio_format, profile=profile_pb2.PROFILE_OFFLINE
        )
        return synthesis_pb2.SynthesizeUnaryResponse(audio=WHOLE, header=header, summary=SUMMARY)

    async def ListVoices(self, request: Any, context: Any) -> Any:
        return synthesis_pb2.ListVoicesResponse(
            voices=[voice_pb2.VoiceSummary(id="narrator", content_hash="ab", prompt_seconds=3.5, is_default=True)]
        )


@contextlib.asynccontextmanager
async def opened(*answers: Answer) -> AsyncIterator[tuple[AsyncClient, Door]]:
    door = Door(answers)
    async with serving(door) as client:
        yield client, door


def answering(
    messages: Callable[[Any], list[Any]] = speech_of, error: errors.CosyserveError | None = None, pause: float = 0.0
) -> Answer:
    """Sends `messages` of a request, then raises `error`, if any, after `pause` seconds."""

    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        for message in messages(request):
            yield message
        await asyncio.sleep(pause)
        if error is not None:
            raise error

    return answer


complete = answering()
