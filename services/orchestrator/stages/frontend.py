"""Client of the frontend: text to sentences, each once, also if another replica sends some of them
again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from cosyserve import telemetry
from cosyserve.errors import FailedPrecondition, InternalFault, InvalidRequest
from cosyserve.rpc.calls import StreamedCall, messages, read
from cosyserve.rpc.deadlines import for_stage
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc, profile_pb2, warning_pb2
from services.orchestrator.faults.hedging import Hedging, first_answer
from services.orchestrator.faults.work import text_work
from services.orchestrator.speech.arriving_text import Flush, TextReplayBuffer
from services.orchestrator.speech.utterance import Sentence, SpokenWord, Utterance
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover, cancelling, pour
from services.orchestrator.stages.voice_contents import VoiceQuestion

MOST_WARNINGS = 50
"""The most that one call of the frontend reports."""
Take = Callable[[Sentence], Awaitable[None]]
Response = frontend_pb2.AnalyzeResponse | frontend_pb2.AnalyzeStreamResponse
Begun = tuple[StreamedCall[frontend_pb2.AnalyzeResponse], frontend_pb2.AnalyzeResponse | None]
"""A call and its first message."""


TextWarnings = list[warning_pb2.TextWarning]
"""The warnings of one request about text that is not spoken as it is written, in order and without
repeats: a frontend that takes over reports some again.
"""


@dataclass(frozen=True)
class FrontendStage:
    """Every call is repeated on another replica when one fails. The analysis of a whole text may be
    hedged, which is a pure function of the text.
    """

    replicas: ReplicaSet
    policy: RetryPolicy
    hedging: Hedging = field(default_factory=Hedging)

    async def analyze(
        self, utterance: Utterance, take: Take, warnings: TextWarnings, asked: VoiceQuestion | None = None
    ) -> int:
        """Hand the sentences of the text to `take`, each once and in order, and add to `warnings`.
        asked: asks for the voice in the same call, and gets the answer. Returns the number of
        takeovers.
        """
        question = None if asked is None else asked.request
        request = frontend_pb2.AnalyzeRequest(setup=_setup(utterance), text=utterance.text, voice=question)
        taken = SentenceDeduplicator(take)

        async def first_of(replica: Replica) -> Begun:
            call = frontend_stub(replica).Analyze(request, metadata=telemetry.outgoing(), timeout=for_stage())
            return call, await read(call)

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            async with first_answer(
                self.hedging, self.replicas, replica, "Analyze", first_of, lambda begun: begun[0].cancel()
            ) as (call, response):
                if asked is not None:
                    asked.answered(response.voice if response and response.HasField("voice") else None)
                    # It may be deleted while it is heard; who takes over need not find it.
                    request.ClearField("voice")
                while response is not None:
                    await _receive(response, utterance, taken, warnings, timer)
                    response = await read(call)

        return await call_with_failover(self.replicas, self.policy, attempt, work=text_work(utterance))

    async def analyze_stream(
        self, utterance: Utterance, text: TextReplayBuffer, take: Take, warnings: TextWarnings
    ) -> int:
        """The same for text that arrives over time; with utterance.by_token a sentence is handed
        over when it begins. Text that the frontend no longer needs is dropped, and another replica
        begins after it. Returns the number of takeovers.
        """
        taken = SentenceDeduplicator(take, by_token=utterance.by_token)
        setup = _setup(utterance)
        setup.reports_progress, setup.partial_sentences = True, utterance.by_token

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            begin, read, complete = text.begin, asyncio.Event(), asyncio.Event()
            taken.restart()
            with cancelling(
                frontend_stub(replica).AnalyzeStream(metadata=telemetry.outgoing(), timeout=for_stage())
            ) as call:
                async with asyncio.TaskGroup() as group:
                    requests = _requests(text, read, complete, timer)
                    group.create_task(pour(call, frontend_pb2.AnalyzeStreamRequest(setup=setup), requests))
                    async for response in messages(call):
                        await _receive(response, utterance, taken, warnings, timer, unfinished=response.unfinished)
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

        return await call_with_failover(self.replicas, self.policy, attempt)


class SentenceDeduplicator:
    """Hands each sentence to `take` once and in order: when it is complete or, with by_token, when
    its first ids are there.
    """

    def __init__(self, take: Take, *, by_token: bool = False) -> None:
        self._take = take
        self._by_token = by_token
        self._sentences = 0
        self._open: Sentence | None = None
        self._received = 0
        self._closed = False

    def restart(self) -> None:
        """Another replica sends the sentences again, from one that may be complete or open."""
        self._received = 0

    async def add(self, message: frontend_pb2.Sentence, *, unfinished: bool = False) -> None:
        """message: a sentence or, with by_token, the ids that continue it. unfinished: more ids
        follow.
        """
        current = message.index == self._sentences
        if current:
            await self._extend(message)
        self._received = self._received + len(message.token_ids) if unfinished else 0
        if current and not unfinished:
            if self._open is not None:
                self._open.end()
            self._open = None
            self._sentences += 1

    async def close(self, pause_milliseconds: int) -> None:
        """The text asks for silence after its last sentence."""
        if not self._closed:
            self._closed = True
            await self._take(Sentence(self._sentences, (), pause_milliseconds))

    async def _extend(self, message: frontend_pb2.Sentence) -> None:
        """Pass on the ids that were not received before."""
        known = 0 if self._open is None else self._open.length
        fresh = tuple(message.token_ids[max(0, known - self._received) :])
        words = [SpokenWord(word.text, word.first_id, word.ids) for word in message.words if word.first_id >= known]
        if self._open is not None:
            self._open.extend(fresh, words, message.language)
        elif fresh or not self._by_token:
            self._open = Sentence(
                message.index,
                fresh,
                message.pause_before_milliseconds,
                words,
                message.rate or 1.0,
                continues=message.continues,
                whole=not self._by_token,
                language=message.language,
            )
            await self._take(self._open)


async def _receive(
    response: Response,
    utterance: Utterance,
    taken: SentenceDeduplicator,
    warnings: TextWarnings,
    timer: StallTimer,
    *,
    unfinished: bool = False,
) -> None:
    """Raises InvalidRequest for a speaking rate in the text that the profile does not support, and
    FailedPrecondition for sentences of a frontend that does not know the limit of their length.
    """
    timer.beat()
    for warning in response.warnings:
        if warning not in warnings and len(warnings) < MOST_WARNINGS:
            warnings.append(warning)
    with timer.paused():
        if response.HasField("sentence"):
            if response.sentence.max_sentence_characters != utterance.max_sentence_characters:
                raise FailedPrecondition(
                    "a frontend of an earlier release knows no max_sentence_characters; update it first"
                )
            rate = response.sentence.rate or 1.0
            if utterance.profile == profile_pb2.PROFILE_UPSTREAM and rate != 1.0:
                raise InvalidRequest(
                    f"SSML: prosody rate makes {rate:g} of the speed of a sentence; PROFILE_UPSTREAM has only 1.0"
                )
            await taken.add(response.sentence, unfinished=unfinished)
        if response.closing_pause_milliseconds:
            await taken.close(response.closing_pause_milliseconds)


async def _requests(
    text: TextReplayBuffer, read: asyncio.Event, complete: asyncio.Event, timer: StallTimer
) -> AsyncGenerator[frontend_pb2.AnalyzeStreamRequest]:
    """The text as it comes; each piece after the previous one was read, so that at most one waits
    at the stage. `read` is set by the reader of responses; `complete` is set here when all is
    written.
    """
    async for piece in timer.paused_between(text.read()):
        read.clear()
        if isinstance(piece, Flush):
            yield frontend_pb2.AnalyzeStreamRequest(flush=frontend_pb2.AnalyzeFlush(least_words=piece.least_words))
        else:
            yield frontend_pb2.AnalyzeStreamRequest(text=piece)
        await read.wait()
    complete.set()


def _setup(utterance: Utterance) -> frontend_pb2.AnalyzeSetup:
    return frontend_pb2.AnalyzeSetup(
        language_code=utterance.language_code,
        allow_control_tokens=utterance.allow_control_tokens,
        pronunciations=utterance.pronunciations,
        joined_sentences=utterance.profile == profile_pb2.PROFILE_UPSTREAM,
        reference_readings=utterance.profile == profile_pb2.PROFILE_UPSTREAM,
        speed=utterance.speed,
        max_sentence_characters=utterance.max_sentence_characters,
    )


def frontend_stub(replica: Replica) -> "frontend_pb2_grpc.FrontendServiceAsyncStub":
    return cast("frontend_pb2_grpc.FrontendServiceAsyncStub", frontend_pb2_grpc.FrontendServiceStub(replica.channel))
