"""The gRPC service Token2WavService. Both methods translate messages to one sentence and its
tokens, and audio chunks back to messages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.engines.compatibility import Identity
from cosyserve.errors import DeadlineExceeded, FailedPrecondition, InvalidRequest
from cosyserve.metrics import names
from cosyserve.metrics.first_result import FirstResult
from cosyserve.metrics.instruments import counter
from cosyserve.rpc import deadlines
from cosyserve.rpc.first_message import setup_of
from cosyserve.rpc.service_info import identity_from_proto, identity_to_proto
from cosyserve.spec import EULER_STEPS
from cosyserve.v1 import profile_pb2, token2wav_pb2, token2wav_pb2_grpc
from services.token2wav.inputs.chunking import trim_prompt
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.stream_slot import PROMPT_CACHED
from services.token2wav.stream import AcousticStream

Response = TypeVar("Response", token2wav_pb2.DecodeResponse, token2wav_pb2.DecodeStreamResponse)
Context = grpc.aio.ServicerContext[Any, Any]
SAMPLE_BYTES = 2
_LOOKUPS = counter(names.CACHE_LOOKUPS)
MESSAGE_BYTES = 1_000_000
"""Maximum audio bytes in one message (20.8 s), so that callers need not raise their gRPC message
limit for a sentence that arrives in one piece.
"""


class Token2WavServicer(token2wav_pb2_grpc.Token2WavServiceServicer):
    """Stateless: all state is local to the call or in the batcher.

    idle_seconds: how long DecodeStream waits for tokens. first_hop_tokens: see
    `services.token2wav.inputs.chunking`.
    """

    def __init__(
        self, identity: Identity, batcher: Batcher, idle_seconds: float = 60.0, first_hop_tokens: int = 0
    ) -> None:
        self._identity, self._batcher, self._idle_seconds = identity, batcher, idle_seconds
        self._first_hop_tokens = first_hop_tokens

    async def Decode(self, request: token2wav_pb2.DecodeRequest, context: Context) -> None:  # type: ignore[override]
        """Decode one sentence whose tokens are all known. Raises what `AcousticStream` raises, and
        InvalidRequest for a malformed setup.
        """
        if not request.HasField("setup"):
            raise InvalidRequest("setup is missing")
        await self._decode(
            request.setup, _known_tokens(list(request.speech_tokens)), token2wav_pb2.DecodeResponse, context
        )

    async def DecodeStream(  # type: ignore[override]
        self, request_iterator: AsyncIterator[token2wav_pb2.DecodeStreamRequest], context: Context
    ) -> None:
        """Decode one sentence whose tokens arrive over time. Also raises DeadlineExceeded if no
        token arrives for `idle_seconds`.
        """
        await self._decode(
            await setup_of(request_iterator),
            _arriving_tokens(request_iterator, self._idle_seconds),
            token2wav_pb2.DecodeStreamResponse,
            context,
        )

    async def _decode(
        self,
        setup: token2wav_pb2.DecodeSetup,
        tokens: AsyncIterator[list[int]],
        response: Callable[..., Response],
        context: Context,
    ) -> None:
        """Run one task that reads tokens and one that writes audio. The first failure cancels both,
        and leaving the stream stops the engine's work for it.
        """
        self._identity.require(
            identity_from_proto(setup.expected_identity) if setup.HasField("expected_identity") else None
        )
        async with AcousticStream(self._batcher, self._sentence(setup)) as stream, asyncio.TaskGroup() as group:
            # Initial metadata confirms that the setup is accepted. The caller sends no tokens
            # before, because a write that is in flight hides the status of a refusal.
            await context.send_initial_metadata(())
            first = FirstResult()
            group.create_task(_read(tokens, stream, first))
            group.create_task(self._write(stream, response, context, first))

    def _sentence(self, setup: token2wav_pb2.DecodeSetup) -> Sentence:
        """The requested sentence; in the continuous profile with a trimmed prompt."""
        sentence = _sentence(setup).in_steps(self._euler_steps(setup))
        if sentence.profile is not Profile.CONTINUOUS:
            return sentence
        return replace(sentence, voice=trim_prompt(sentence.voice, self._first_hop_tokens))

    def _euler_steps(self, setup: token2wav_pb2.DecodeSetup) -> int:
        """How many are taken. Raises FailedPrecondition if the engine cannot take so few."""
        profile = _profile(setup.profile)
        if self._batcher.takes_fewer_steps(profile):
            return setup.euler_steps or setup.preferred_euler_steps or EULER_STEPS
        if setup.euler_steps not in (0, EULER_STEPS):
            raise FailedPrecondition(
                f"euler_steps is {setup.euler_steps}; {self._identity.backend} takes {EULER_STEPS} in profile "
                f"{profile.name.lower()}"
            )
        return EULER_STEPS

    async def _write(
        self, stream: AcousticStream, response: Callable[..., Response], context: Context, first: FirstResult
    ) -> None:
        spent = _Spent()
        async for hop in stream:
            if hop.samples.size:
                first.made()
            for timing in hop.timings:
                telemetry.record(timing)
                if (hit := timing.attributes.get(PROMPT_CACHED)) is not None:
                    telemetry.annotate(PROMPT_CACHED, bool(hit))
                    _LOOKUPS.add(1, cache="prompts", result="hit" if hit else "miss")
            spent.add(hop)
            messages = _messages(hop)
            if hop.hop.index == 0:
                messages[0].identity.CopyFrom(identity_to_proto(self._identity))
                messages[0].euler_steps = stream.euler_steps
                messages[0].first_hop_tokens = self._first_hop_tokens
            if hop.last:
                messages[-1].summary.CopyFrom(spent.summary(hop.end_sample))
            for audio in messages:
                await context.write(response(audio=audio))


def _messages(hop: HopAudio) -> list[token2wav_pb2.DecodedAudio]:
    """Split a hop, as 24 kHz s16le, into messages of at most MESSAGE_BYTES. A hop without audio is
    a message too: it shows the caller that decoding makes progress.
    """
    audio = hop.audio
    return [
        token2wav_pb2.DecodedAudio(
            audio=audio[at : at + MESSAGE_BYTES], start_sample=hop.start_sample + at // SAMPLE_BYTES
        )
        for at in range(0, max(len(audio), 1), MESSAGE_BYTES)
    ]


@dataclass
class _Spent:
    """Milliseconds spent in flow and vocoder: in total, and until the first audio."""

    flow: float = 0.0
    vocoder: float = 0.0
    first: tuple[float, float] | None = None

    def add(self, hop: HopAudio) -> None:
        self.flow += sum(timing.milliseconds for timing in hop.timings if timing.name == "token2wav.flow")
        self.vocoder += sum(timing.milliseconds for timing in hop.timings if timing.name == "token2wav.vocoder")
        if self.first is None and hop.samples.size:
            self.first = self.flow, self.vocoder

    def summary(self, samples: int) -> token2wav_pb2.DecodeSummary:
        first_flow, first_vocoder = self.first or (self.flow, self.vocoder)
        return token2wav_pb2.DecodeSummary(
            samples=samples,
            flow_milliseconds=self.flow,
            vocoder_milliseconds=self.vocoder,
            first_flow_milliseconds=first_flow,
            first_vocoder_milliseconds=first_vocoder,
        )


async def _read(tokens: AsyncIterator[list[int]], stream: AcousticStream, first: FirstResult) -> None:
    async for some in tokens:
        first.given()
        await stream.feed(some)
    await stream.finish()


async def _known_tokens(tokens: list[int]) -> AsyncIterator[list[int]]:
    yield tokens


async def _arriving_tokens(
    requests: AsyncIterator[token2wav_pb2.DecodeStreamRequest], idle_seconds: float
) -> AsyncIterator[list[int]]:
    """Token batches in order of arrival. Raises DeadlineExceeded if none arrives for
    `idle_seconds`, because an idle stream occupies memory that other streams wait for.
    """
    messages = aiter(requests)
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                ids = await _next_tokens(messages)
        except TimeoutError:
            raise DeadlineExceeded(f"no tokens came for {idle_seconds:g} s") from None
        if ids is None:
            return
        yield ids


async def _next_tokens(messages: AsyncIterator[token2wav_pb2.DecodeStreamRequest]) -> list[int] | None:
    """The next non-empty token batch; None when the caller has closed its side."""
    async for message in messages:
        if message.WhichOneof("part") != "tokens":
            raise InvalidRequest("only the first message may be the setup; all later ones must be tokens")
        if message.tokens.ids:
            return list(message.tokens.ids)
    return None


def _sentence(setup: token2wav_pb2.DecodeSetup) -> Sentence:
    return Sentence(
        voice=Voice.from_bytes(
            list(setup.prompt_speech_tokens), setup.prompt_mel, setup.speaker_embedding, setup.voice_hash
        ),
        seed=setup.seed,
        sentence_index=setup.sentence_index,
        profile=_profile(setup.profile),
        hops=_hops(setup.hops),
        speed=setup.speed or 1.0,
        start_sample=setup.start_sample,
        guards=setup.guards,
        holds_silence=setup.holds_silence,
        listener_seconds=setup.listener_seconds,
        utterance=setup.utterance,
        caller_streams=setup.caller_streams,
        withholds_silence=setup.withholds_silence,
        deadline=deadlines.until(),
    )


def _profile(value: int) -> Profile:
    if value == profile_pb2.PROFILE_UNSPECIFIED:
        return Profile.CONTINUOUS
    if value not in profile_pb2.Profile.values():
        raise InvalidRequest(f"profile {value} is not known; known are {', '.join(profile_pb2.Profile.keys()[1:])}")
    return Profile(value)


def _hops(hops: profile_pb2.HopSchedule) -> Hops:
    growths = profile_pb2.HopSchedule.Growth
    if hops.growth not in growths.values():
        raise InvalidRequest(f"hops.growth {hops.growth} is not known; known are {', '.join(growths.keys()[1:])}")
    growth = None if hops.growth == profile_pb2.HopSchedule.GROWTH_UNSPECIFIED else Growth(hops.growth)
    return Hops(hops.first_hop_tokens or 1, growth, hops.max_hop_tokens or 100)
