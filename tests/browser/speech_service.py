"""A speech service whose speech a test paces: what the gateway calls in place of an
orchestrator.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from cosyserve.rpc.server import Close, ServerSettings, Service, running
from cosyserve.v1 import audio_pb2, synthesis_pb2, voice_pb2, warning_pb2
from cosyserve.v1.synthesis_pb2_grpc import SynthesisServiceServicer, add_SynthesisServiceServicer_to_server
from tests.stacks.gateway_server import Gateway, gateway

RATE = 24_000
STAGES = {"frontend": 4.0, "llm_prefill": 12.0, "llm_decode": 61.0, "flow": 78.0, "vocoder": 42.0}
"""Milliseconds to the first sound."""


def voice(name: str, sex: str, *, preset: bool = True) -> voice_pb2.VoiceSummary:
    return voice_pb2.VoiceSummary(
        id=name.lower(), display_name=name, language_code="en-US", labels={"sex": sex}, is_preset=preset,
        is_default=name == "Anna",
    )  # fmt: skip


def sound(seconds: float, begun: float = 0.0) -> bytes:
    """A tone that swells three times a second, so that a waveform shows something."""
    at = begun + np.arange(round(seconds * RATE)) / RATE
    return (9_000 * np.sin(2 * np.pi * 220 * at) * np.abs(np.sin(3 * np.pi * at))).astype("<i2").tobytes()


@dataclass
class Spoken:
    """What one request was, and how far it got."""

    setup: synthesis_pb2.StreamingSynthesizeSetup
    metadata: dict[str, str]
    text: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The call is over: finished, cancelled or hung up."""
    cancelled: bool = False


@dataclass
class SpeechService(SynthesisServiceServicer):
    """Words last 0.2 s each and come with the first audio. step: seconds of audio in a message."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Everything but the first messages waits for it."""
    at_once: int = 2
    """Messages that do not wait."""
    failure: tuple[grpc.StatusCode, str] | None = None
    """In place of all audio."""
    failure_behind: bool = False
    """The failure comes behind the first messages instead."""
    warning: str = ""
    words: list[str] = field(default_factory=list)
    """As spoken; without: those of the text."""
    step: float = 0.2
    spoken: list[Spoken] = field(default_factory=list)
    voices: list[voice_pb2.VoiceSummary] = field(
        default_factory=lambda: [voice("Anna", "female"), voice("Bruno", "male")]
    )
    drafts: list[voice_pb2.VoiceDraft] = field(default_factory=list)
    draft_failure: str = ""

    async def StreamingSynthesize(
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[synthesis_pb2.SynthesizeResponse]:
        setup = (await anext(requests)).setup
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        spoken = Spoken(setup, metadata)
        self.spoken.append(spoken)
        await context.send_initial_metadata(())  # clients write text once they are accepted
        try:
            async for request in requests:
                spoken.text += request.text
            async for response in self._speech(spoken, context):
                yield response
        except asyncio.CancelledError:
            spoken.cancelled = True
            raise
        finally:
            spoken.ended.set()

    async def _speech(self, spoken: Spoken, context: Any) -> AsyncIterator[synthesis_pb2.SynthesizeResponse]:
        if self.failure and not self.failure_behind:
            await context.abort(*self.failure)
        request = spoken.setup.request
        words = self.words or [word.strip(".,!?") for word in spoken.text.split()]
        seconds = max(0.2 * len(words), 3 * self.step)
        messages = round(seconds / self.step)
        for number in range(messages):
            if number == self.at_once:
                if self.failure:
                    await context.abort(*self.failure)
                await self.gate.wait()
            response = synthesis_pb2.SynthesizeResponse(
                audio=sound(self.step, number * self.step),
                chunk_index=number,
                start_sample=round(number * self.step * RATE),
            )
            if number == 0:
                response.header.CopyFrom(
                    synthesis_pb2.SynthesisHeader(
                        seed=request.seed, voice=request.voice or "anna", onset=synthesis_pb2.ONSET_TRIMMED,
                        audio_format=audio_pb2.AudioFormat(
                            encoding=audio_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=RATE
                        ),
                    )
                )  # fmt: skip
                if self.warning:
                    response.warnings.append(
                        warning_pb2.TextWarning(
                            kind=warning_pb2.TextWarning.KIND_UNREADABLE, message=self.warning, left_out=["♞"]
                        )
                    )
                response.words.extend(
                    synthesis_pb2.WordTime(text=word, start_seconds=0.2 * at, end_seconds=0.2 * at + 0.18)
                    for at, word in enumerate(words)
                )
            yield response
        yield synthesis_pb2.SynthesizeResponse(
            chunk_index=messages,
            start_sample=round(messages * self.step * RATE),
            summary=synthesis_pb2.SynthesisSummary(
                audio_seconds=messages * self.step,
                first_sound_milliseconds=sum(STAGES.values()),
                first_audible_milliseconds=sum(STAGES.values()) + 30,
                real_time_factor=0.2,
                sentences=1,
                first_sound=synthesis_pb2.StageMilliseconds(**STAGES),
            ),
        )

    async def ListVoices(self, request: Any, context: Any) -> synthesis_pb2.ListVoicesResponse:
        return synthesis_pb2.ListVoicesResponse(voices=self.voices)

    async def CreateVoice(
        self, request: synthesis_pb2.CreateVoiceRequest, context: Any
    ) -> synthesis_pb2.CreateVoiceResponse:
        self.drafts.append(request.draft)
        if self.draft_failure:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.draft_failure)
        metadata = request.draft.metadata
        made = voice(metadata.display_name, metadata.labels["sex"], preset=False)
        self.voices.append(made)
        return synthesis_pb2.CreateVoiceResponse(voice=voice_pb2.VoiceDetails(summary=made))

    async def DeleteVoice(
        self, request: synthesis_pb2.DeleteVoiceRequest, context: Any
    ) -> synthesis_pb2.DeleteVoiceResponse:
        self.voices = [each for each in self.voices if each.id != request.id]
        return synthesis_pb2.DeleteVoiceResponse()


@contextlib.asynccontextmanager
async def paced_gateway(
    gate: grpc.aio.ServerInterceptor | None = None, **settings: Any
) -> AsyncIterator[tuple[Gateway, SpeechService]]:
    """A gateway in front of such a service. gate: in front of the service. settings: of the
    gateway.
    """
    service = SpeechService()

    async def load(server: Service) -> Close:
        add_SynthesisServiceServicer_to_server(service, server.handlers)
        return _nothing

    server_settings = ServerSettings(listen="127.0.0.1:0", drain_seconds=0.0)
    async with (
        running("cosyserve.v1.SynthesisService", server_settings, load, gate=gate) as server,
        gateway(f"127.0.0.1:{server.port}", **settings) as served,
    ):
        yield served, service
        service.gate.set()


async def _nothing() -> None:
    pass
