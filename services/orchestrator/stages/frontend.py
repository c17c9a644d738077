"""Client of the frontend: text to sentences."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import grpc
from cosyserve.rpc.calls import messages

from cosyserve import telemetry
from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc, profile_pb2, warning_pb2
from services.orchestrator.speech.utterance import OpenSentence, Sentence, SpokenWord, Utterance
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover, cancelling
from services.orchestrator.stages.frontend import SentenceDeduplicator, TextWarning
from services.orchestrator.text.replay_buffer import Flush, TextReplayBuffer

Take = Callable[[Sentence | OpenSentence], Awaitable[None]]
Warn = Callable[[Iterable[TextWarning]], None]
AnalyzeCall = grpc.aio.StreamStreamCall[frontend_pb2.AnalyzeStreamRequest, frontend_pb2.AnalyzeStreamResponse]


class FrontendStage:
    """Every call is repeated on another replica when one fails."""

    def __init__(self, replicas: ReplicaSet, policy: RetryPolicy) -> None:
        self.replicas = replicas
        self._policy = policy

    async def analyze(self, utterance: Utterance, take: Take, warn: Warn) -> int:
        """Hand the sentences of the text to `take`, each once and in order, and warnings to `warn`,
        some perhaps twice. Returns the number of takeovers.
        """
        request = frontend_pb2.AnalyzeRequest(setup=_setup(utterance), text=utterance.text)
        taken = SentenceDeduplicator(take)

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            with cancelling(_stub(replica).Analyze(request, metadata=telemetry.outgoing())) as call:
                async for response in messages(call):
                    timer.beat()
                    warn(map(_warning, response.warnings))
                    with timer.paused():
                        if response.HasField("sentence"):
                            await taken.add(_sentence(response.sentence, utterance), whole=True, unfinished=False)
                        if response.closing_pause_milliseconds:
                            await taken.close(response.closing_pause_milliseconds)

        return await call_with_failover(self.replicas, self._policy, attempt)

    async def analyze_stream(self, utterance: Utterance, text: TextReplayBuffer, take: Take, warn: Warn) -> int:
        """The same for text that arrives over time; with utterance.by_token a sentence is handed
        over when it begins. Text that the frontend no longer needs is dropped, and another replica
        begins after it. Returns the number of takeovers.
        """
        taken = SentenceDeduplicator(take)
        setup = _setup(utterance)
        setup.reports_progress, setup.partial_sentences = True, utterance.by_token

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            begin, read, complete = text.begin, asyncio.Event(), asyncio.Event()
            taken.restart()
            with cancelling(_stub(replica).AnalyzeStream(metadata=telemetry.outgoing())) as call:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pour(call, setup, text, read, complete, timer))
                    async for response in messages(call):
                        timer.beat()
                        warn(map(_warning, response.warnings))
                        with timer.paused():
                            if response.HasField("sentence"):
                                sentence = _sentence(response.sentence, utterance)
                                await taken.add(sentence, whole=not utterance.by_token, unfinished=response.unfinished)
                            if response.closing_pause_milliseconds:
                                await taken.close(response.closing_pause_milliseconds)
                        if response.HasField("progress"):
                            if response.progress.document:
                                text.keep_whole()
                            text.forget(begin + response.progress.characters)
                            setup.goes_on = text.begin > 0
                            setup.first_index = response.progress.sentences
                            setup.first_pause_milliseconds = response.progress.pause_milliseconds
                            setup.last_language_code = response.progress.last_language_code
                            read.set()
                    if not complete.is_set():
                        raise InternalFault(f"{self.replicas.stage} ended a text before its end")

        return await call_with_failover(self.replicas, self._policy, attempt)


def _setup(utterance: Utterance) -> frontend_pb2.AnalyzeSetup:
    return frontend_pb2.AnalyzeSetup(
        language_code=utterance.language_code,
        allow_control_tokens=utterance.allow_control_tokens,
        pronunciations=utterance.pronunciations,
        joined_sentences=utterance.profile == profile_pb2.PROFILE_UPSTREAM,
        reference_readings=utterance.profile == profile_pb2.PROFILE_UPSTREAM,
        speed=utterance.speed,
    )


def _sentence(message: frontend_pb2.Sentence, utterance: Utterance) -> Sentence:
    """Raises InvalidRequest for a speaking rate in the text that the profile does not support."""
    words = tuple(SpokenWord(word.text, word.first_id, word.ids) for word in message.words)
    rate = message.rate or 1.0
    if utterance.profile == profile_pb2.PROFILE_UPSTREAM and rate != 1.0:
        raise InvalidRequest(
            f"SSML: prosody rate makes {rate:g} of the speed of a sentence; PROFILE_UPSTREAM has only 1.0"
        )
    return Sentence(
        message.index, tuple(message.token_ids), message.pause_before_milliseconds, words, rate, message.continues
    )


def _warning(message: warning_pb2.TextWarning) -> TextWarning:
    return TextWarning(message.kind, message.message, tuple(message.left_out), message.sentence)


async def _pour(
    call: AnalyzeCall,
    setup: frontend_pb2.AnalyzeSetup,
    text: TextReplayBuffer,
    read: asyncio.Event,
    complete: asyncio.Event,
    timer: StallTimer,
) -> None:
    """Write the setup and, once it is accepted, the text as it comes; each piece after the previous
    one was read, so that at most one waits at the stage. `read` is set by the reader of responses;
    `complete` is set here when all is written.

    A write on a dead call is ignored, as in `stages.token2wav`.
    """
    place = text.start()
    try:
        await call.write(frontend_pb2.AnalyzeStreamRequest(setup=setup))
        await call.initial_metadata()
        while True:
            with timer.paused():
                piece = await text.read(place)
            if piece is None:
                break
            if isinstance(piece, Flush):
                request = frontend_pb2.AnalyzeStreamRequest(
                    flush=frontend_pb2.AnalyzeFlush(least_words=piece.least_words)
                )
            else:
                request = frontend_pb2.AnalyzeStreamRequest(text=piece)
            read.clear()
            await call.write(request)
            await read.wait()
        complete.set()
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return


def _stub(replica: Replica) -> "frontend_pb2_grpc.FrontendServiceAsyncStub":
    return cast("frontend_pb2_grpc.FrontendServiceAsyncStub", frontend_pb2_grpc.FrontendServiceStub(replica.channel))
