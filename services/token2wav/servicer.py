"""Token2WavService: messages to a sentence and tokens, pieces of sound to messages. Both methods
share one code path.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.engines.identity import Identity
from cosyserve.errors import DeadlineExceeded, InvalidRequest
from cosyserve.rpc.identity import identity_from_proto, identity_to_proto
from cosyserve.v1 import profile_pb2, token2wav_pb2, token2wav_pb2_grpc
from services.token2wav.inputs.prompt_trimming import trimmed
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.stream_slot import PROMPT_CACHED
from services.token2wav.stream import AcousticStream, Piece

Response = TypeVar("Response", token2wav_pb2.DecodeResponse, token2wav_pb2.DecodeStreamResponse)
Context = grpc.aio.ServicerContext[Any, Any]
SAMPLE_BYTES = 2
_PROMPTS = telemetry.meter.create_counter(
    "cosyserve.token2wav.prompts",
    "{sentence}",
    "Sentences by whether the state behind their voice's prompt was kept (result: hit, miss)",
)
MESSAGE_BYTES = 1_000_000
"""Most audio in one message, 20.8 s: callers need not raise their message limit for a sentence that
comes in one piece.
"""


class Token2WavServicer(token2wav_pb2_grpc.Token2WavServiceServicer):
    """Stateless: everything lives in the call or in the batcher. idle_seconds: how long
    DecodeStream waits for tokens. first_hop_tokens: see
    `services.token2wav.inputs.prompt_trimming`."""

    def __init__(
        self, identity: Identity, batcher: Batcher, idle_seconds: float = 60.0, first_hop_tokens: int = 0
    ) -> None:
        self._identity = identity
        self._batcher = batcher
        self._idle_seconds = idle_seconds
        self._first_hop_tokens = first_hop_tokens

    async def Decode(self, request: token2wav_pb2.DecodeRequest, context: Context) -> None:  # type: ignore[override]
        """One sentence whose tokens are all known. Raises what `AcousticStream` raises, and
        InvalidRequest for a malformed setup.
        """
        if not request.HasField("setup"):
            raise InvalidRequest("setup is missing")
        await self._decode(request.setup, _at_once(list(request.speech_tokens)), token2wav_pb2.DecodeResponse, context)

    async def DecodeStream(  # type: ignore[override]
        self, request_iterator: AsyncIterator[token2wav_pb2.DecodeStreamRequest], context: Context
    ) -> None:
        """The same for tokens that arrive over time. Raises DeadlineExceeded, too, when none come
        for `idle_seconds`.
        """
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("part") != "setup":
            raise InvalidRequest("the first message must be the setup")
        await self._decode(
            first.setup,
            _as_they_come(request_iterator, self._idle_seconds),
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
        """One task reads tokens, one writes sound. The first to fail ends both, and leaving the
        stream stops the engine's work.
        """
        self._identity.require(_expected(setup))
        async with AcousticStream(self._batcher, self._sentence(setup)) as stream, asyncio.TaskGroup() as group:
            # Says that the setup is accepted: the caller keeps its tokens back until then, as a
            # write that crosses a refusal hides it.
            await context.send_initial_metadata(())
            group.create_task(_read(tokens, stream))
            group.create_task(self._write(stream, response, context))

    def _sentence(self, setup: token2wav_pb2.DecodeSetup) -> Sentence:
        """As asked for; in the served profile with the prompt cut."""
        sentence = _sentence(setup)
        if sentence.profile is not Profile.CONTINUOUS:
            return sentence
        return replace(sentence, voice=trimmed(sentence.voice, self._first_hop_tokens))

    async def _write(self, stream: AcousticStream, response: Callable[..., Response], context: Context) -> None:
        spent, first = _Spent(), True
        async for piece in stream:
            for timing in piece.timings:
                telemetry.record(timing)
                if PROMPT_CACHED in timing.attributes:
                    _count_prompt(hit=bool(timing.attributes[PROMPT_CACHED]))
            spent.add(piece)
            messages = _messages(piece)
            if first:
                messages[0].identity.CopyFrom(identity_to_proto(self._identity))
                first = False
            if piece.last:
                messages[-1].summary.CopyFrom(spent.summary(piece.samples_made))
            for audio in messages:
                await context.write(response(audio=audio))


def _count_prompt(*, hit: bool) -> None:
    """One more sentence whose voice's prompt was there, or had to be computed."""
    telemetry.annotate(PROMPT_CACHED, hit)
    _PROMPTS.add(1, {"result": "hit" if hit else "miss"})


def _messages(piece: Piece) -> list[token2wav_pb2.DecodedAudio]:
    """A piece in messages of bounded size. One without sound is a message too: it tells the caller
    that the work goes on.
    """
    starts = range(0, max(len(piece.audio), 1), MESSAGE_BYTES)
    return [
        token2wav_pb2.DecodedAudio(
            audio=piece.audio[at : at + MESSAGE_BYTES], start_sample=piece.start_sample + at // SAMPLE_BYTES
        )
        for at in starts
    ]


@dataclass
class _Spent:
    """Milliseconds in flow and vocoder, in all and up to the first sound."""

    flow: float = 0.0
    vocoder: float = 0.0
    first: tuple[float, float] | None = None

    def add(self, piece: Piece) -> None:
        self.flow += sum(timing.milliseconds for timing in piece.timings if timing.name == "token2wav.flow")
        self.vocoder += sum(timing.milliseconds for timing in piece.timings if timing.name == "token2wav.vocoder")
        if self.first is None and piece.audio:
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


async def _read(tokens: AsyncIterator[list[int]], stream: AcousticStream) -> None:
    async for some in tokens:
        await stream.feed(some)
    await stream.finish()


async def _at_once(tokens: list[int]) -> AsyncIterator[list[int]]:
    yield tokens


async def _as_they_come(
    requests: AsyncIterator[token2wav_pb2.DecodeStreamRequest], idle_seconds: float
) -> AsyncIterator[list[int]]:
    """The runs of tokens. Raises DeadlineExceeded when none comes for `idle_seconds`: a stream
    holds memory that others wait for.
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
    """The next run that is not empty; None when the caller has closed its side."""
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


def _expected(setup: token2wav_pb2.DecodeSetup) -> Identity | None:
    if not setup.HasField("expected_identity"):
        return None
    return identity_from_proto(setup.expected_identity)
