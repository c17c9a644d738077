"""Client of token2wav: the speech tokens of one sentence, as they come, to 24 kHz sound."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import grpc

from cosyserve import spec, telemetry
from cosyserve.errors import InternalFault
from cosyserve.rpc.calls import as_error, messages
from cosyserve.rpc.deadlines import for_stage
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.rpc.service_info import identity_from_proto, identity_to_proto
from cosyserve.v1 import profile_pb2, token2wav_pb2, token2wav_pb2_grpc
from services.orchestrator.faults.work import sentence_work
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.silence import Play
from services.orchestrator.speech.token_stream import TokenStream
from services.orchestrator.speech.utterance import Utterance
from services.orchestrator.stages.engines import Engines
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover, cancelling, pour
from services.orchestrator.stages.prompt_cut import PromptCut

_WARM_SECONDS = 120.0


@dataclass
class Decoded:
    """Summary of a decoded sentence."""

    summary: token2wav_pb2.DecodeSummary = field(default_factory=token2wav_pb2.DecodeSummary)
    takeovers: int = 0


@dataclass(frozen=True)
class Listener:
    """The playback of a request."""

    utterance: int
    """Number of the request."""
    seconds: Callable[[], float]
    """Returns the seconds of sound still to be played before a sentence; called whenever a replica
    begins it.
    """


@dataclass(frozen=True)
class Token2WavStage:
    """When a replica fails, another one gets all tokens again and sends only the samples that were
    not yet received.
    """

    replicas: ReplicaSet
    policy: RetryPolicy
    guards: bool
    cut: PromptCut = field(default_factory=PromptCut)

    async def decode(
        self,
        utterance: Utterance,
        conditioning: Conditioning,
        stream: TokenStream,
        play: Play,
        engines: Engines,
        *,
        listener: Listener | None = None,
        may_be_last: Callable[[], bool] = lambda: True,
        may_be_silent: bool = False,
    ) -> Decoded:
        """Hand the audio of a sentence (s16le, 24 kHz) to `play` in order, without gap or repeat.
        listener: determines when it is due. may_be_last: whether it may be the utterance's last
        sentence, asked whenever a replica begins it. may_be_silent: silence is not a fault.
        """
        setup = _setup(utterance, conditioning, stream, self.guards and not may_be_silent)
        if engines.token2wav is not None:
            setup.expected_identity.CopyFrom(identity_to_proto(engines.token2wav))
        decoded = Decoded()
        # With full attention there is no response before the whole utterance is computed.
        silent = utterance.profile == profile_pb2.PROFILE_OFFLINE

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            finished = False
            if listener is not None:
                setup.utterance, setup.listener_seconds = listener.utterance, listener.seconds()
            setup.withholds_silence = utterance.trimmed and may_be_last()
            setup.caller_streams = sum(each.calls for each in self.replicas.replicas)
            request = token2wav_pb2.DecodeStreamRequest
            tokens = (
                request(tokens=token2wav_pb2.SpeechTokenIds(ids=piece))
                async for piece in timer.paused_between(stream.read())
            )
            with (
                cancelling(_stub(replica).DecodeStream(metadata=telemetry.outgoing(), timeout=for_stage())) as call,
                timer.paused() if silent else contextlib.nullcontext(),
            ):
                async with asyncio.TaskGroup() as group:
                    group.create_task(pour(call, request(setup=setup), tokens))
                    async for response in messages(call):
                        timer.beat()
                        news = response.audio
                        if news.HasField("identity"):
                            setup.expected_identity.CopyFrom(news.identity)
                            engines.token2wav = identity_from_proto(news.identity)
                            engines.euler_steps = news.euler_steps or spec.EULER_STEPS
                            self.cut.says(replica, engines.token2wav, news.first_hop_tokens)
                        if news.audio:
                            if news.start_sample != setup.start_sample:
                                raise InternalFault(
                                    f"{self.replicas.stage} sent audio from sample {news.start_sample}, "
                                    f"expected {setup.start_sample}"
                                )
                            setup.start_sample += len(news.audio) // 2
                            with timer.paused():
                                await play(news.audio)
                        if news.HasField("summary"):
                            decoded.summary, finished = news.summary, True
            if not finished:
                raise InternalFault(f"{self.replicas.stage} ended a sentence without its summary")

        work = sentence_work(self.replicas.stage, utterance, conditioning, stream)
        decoded.takeovers = await call_with_failover(
            self.replicas, self.policy, attempt, under_way=stream.sentence.index > 0, work=work
        )
        return decoded

    async def warm(self, replica: Replica, conditioning: Conditioning) -> None:
        """Let `replica` decode one token and discard the sound, so that it caches the state of the
        prompt.
        """
        request = token2wav_pb2.DecodeRequest(setup=_conditioning_setup(conditioning), speech_tokens=[0])
        try:
            with cancelling(_stub(replica).Decode(request, timeout=_WARM_SECONDS)) as call:
                async for response in messages(call):
                    if response.audio.HasField("identity"):
                        engine = identity_from_proto(response.audio.identity)
                        self.cut.says(replica, engine, response.audio.first_hop_tokens)
        except grpc.aio.AioRpcError as error:
            raise as_error(error, self.replicas.stage) from error


def _stub(replica: Replica) -> "token2wav_pb2_grpc.Token2WavServiceAsyncStub":
    return cast(
        "token2wav_pb2_grpc.Token2WavServiceAsyncStub", token2wav_pb2_grpc.Token2WavServiceStub(replica.channel)
    )


def is_served_profile(utterance: Utterance) -> bool:
    """Whether its samples are independent of where and when they are cut."""
    return utterance.profile == profile_pb2.PROFILE_CONTINUOUS


def _setup(
    utterance: Utterance, conditioning: Conditioning, stream: TokenStream, guards: bool
) -> token2wav_pb2.DecodeSetup:
    hops = profile_pb2.HopSchedule(
        first_hop_tokens=utterance.first_hop_tokens,
        growth=cast("profile_pb2.HopSchedule.Growth.ValueType", utterance.growth),
        max_hop_tokens=utterance.max_hop_tokens,
    )
    setup = _conditioning_setup(conditioning)
    setup.seed = stream.seed
    setup.guards = guards
    setup.holds_silence = guards and utterance.retry and not stream.attempt
    setup.sentence_index = stream.sentence.index
    setup.profile = cast("profile_pb2.Profile.ValueType", utterance.profile)
    setup.hops.CopyFrom(hops)
    setup.speed = utterance.speed_of(stream.sentence)
    setup.euler_steps, setup.preferred_euler_steps = utterance.euler_steps, utterance.preferred_euler_steps
    return setup


def _conditioning_setup(conditioning: Conditioning) -> token2wav_pb2.DecodeSetup:
    return token2wav_pb2.DecodeSetup(
        prompt_speech_tokens=conditioning.speech_tokens,
        prompt_mel=conditioning.mel,
        speaker_embedding=conditioning.speaker_embedding,
        voice_hash=conditioning.key,
    )
