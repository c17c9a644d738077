"""The gRPC servicer: it validates a call before any other work, converts it into a `Generation` for
the backend, and sends every hop of the backend as one response message. The two RPCs differ only in
where the text comes from.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from grpc.aio import ServicerContext

from cosyserve import telemetry
from cosyserve.errors import CallersDeadline, InvalidRequest
from cosyserve.generations.generation import SilentTokens
from cosyserve.metrics.first_result import FirstResult
from cosyserve.rpc import deadlines
from cosyserve.rpc.first_message import setup_of
from cosyserve.rpc.service_info import identity_from_proto, identity_to_proto
from cosyserve.spec import LONGEST_SENTENCE, SPEECH_VOCABULARY
from cosyserve.v1 import llm_pb2, llm_pb2_grpc, profile_pb2
from services.llm.backends.backend import Backend, MeasuredGeneration
from services.llm.generation.request import (
    MOST_ARRIVING_IDS,
    MOST_PROMPT_SPEECH,
    MOST_TOKENS,
    FinishReason,
    Generation,
    Grouping,
    Profile,
    Prompt,
    Sampling,
    TextStream,
)
from services.llm.guards.alignment import AlignmentTable
from services.llm.guards.repetition import require_no_repetition
from services.llm.guards.token_guards import TokenGuards

_REASONS = {
    FinishReason.END_OF_SPEECH: llm_pb2.GenerateSummary.FINISH_REASON_END_OF_SPEECH,
    FinishReason.LENGTH: llm_pb2.GenerateSummary.FINISH_REASON_LENGTH,
}
MOST_IN_MESSAGE = 400
"""Most speech tokens of a response message."""
DEFAULT_IN_MESSAGE = 25
"""Speech tokens of a response message where the request does not set a number."""


class LlmServicer(llm_pb2_grpc.LlmServiceServicer):
    """cosyserve.v1.LlmService on a backend. idle_seconds: how long `GenerateStream` waits for
    text ids after its setup before it ends with DEADLINE_EXCEEDED. silent: tokens of which long
    runs are not spoken, which callers learn; None: every token is spoken.
    """

    def __init__(self, backend: Backend, *, idle_seconds: float = 60.0, silent: SilentTokens | None = None) -> None:
        self._backend, self._idle_seconds, self._silent = backend, idle_seconds, silent
        self.measured = MeasuredGeneration(backend)

    async def Generate(
        self,
        request: llm_pb2.GenerateRequest,
        context: ServicerContext[llm_pb2.GenerateRequest, llm_pb2.GenerateResponse],
    ) -> AsyncGenerator[llm_pb2.GenerateResponse]:
        """Generate the tokens of a sentence whose text is complete. Raises InvalidRequest,
        FailedPrecondition and what the backend and the guards raise.
        """
        if not request.HasField("setup"):
            raise InvalidRequest("setup is missing")
        text = _ids("text_ids", request.text_ids, self._backend.text_vocabulary, least=1, most=LONGEST_SENTENCE)
        generation = self._generation(request.setup, text)
        most = self._backend.lengths.longest(len(text))
        if len(generation.replay) > most:
            raise InvalidRequest(
                f"setup.replay_tokens has {len(generation.replay)} ids, a sentence of {len(text)} text ids has at "
                f"most {most}"
            )
        first = FirstResult()
        first.given()
        async with contextlib.aclosing(self._responses(generation, list(text), context, first)) as messages:
            async for tokens in messages:
                yield llm_pb2.GenerateResponse(tokens=tokens)

    async def GenerateStream(
        self,
        request_iterator: AsyncIterator[llm_pb2.GenerateStreamRequest],
        context: ServicerContext[llm_pb2.GenerateStreamRequest, llm_pb2.GenerateStreamResponse],
    ) -> AsyncGenerator[llm_pb2.GenerateStreamResponse]:
        """Generate tokens while text ids arrive. The client sends the setup first, then messages of
        text ids. Raises as `Generate`, and CallersDeadline after `idle_seconds` without them.
        """
        requests = aiter(request_iterator)
        setup = await setup_of(requests)
        received: list[int] = []
        first = FirstResult()
        generation = self._generation(setup, self._text(requests, received, first))
        async with contextlib.aclosing(self._responses(generation, received, context, first)) as messages:
            async for tokens in messages:
                yield llm_pb2.GenerateStreamResponse(tokens=tokens)

    async def _text(
        self, requests: AsyncIterator[llm_pb2.GenerateStreamRequest], received: list[int], first: FirstResult
    ) -> TextStream:
        """The ids of each message that has any, also appended to `received`. Messages without ids
        do not extend the deadline. Raises InvalidRequest, and CallersDeadline when no ids arrive
        in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._idle_seconds
        while (request := await self._next_message(deadline, requests)) is not None:
            if request.WhichOneof("part") != "text":
                raise InvalidRequest("every message after the first has to be text")
            ids = _ids("text.ids", request.text.ids, self._backend.text_vocabulary, most=MOST_ARRIVING_IDS)
            if not ids:
                continue
            received += ids
            if len(received) > MOST_ARRIVING_IDS:
                raise InvalidRequest(
                    f"text has {len(received)} ids in all its messages, allowed are 1 to {MOST_ARRIVING_IDS}"
                )
            first.given()
            yield list(ids)
            deadline = loop.time() + self._idle_seconds

    async def _next_message(
        self, deadline: float, requests: AsyncIterator[llm_pb2.GenerateStreamRequest]
    ) -> llm_pb2.GenerateStreamRequest | None:
        """The next message; None after the last. Raises CallersDeadline when the event loop's time
        reaches `deadline`.
        """
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(requests, None)
        except TimeoutError:
            raise CallersDeadline(f"no text came for {self._idle_seconds:g} s") from None

    def _generation(self, setup: llm_pb2.GenerateSetup, text: tuple[int, ...] | TextStream) -> Generation:
        """The request to the backend, with `setup` validated. Raises InvalidRequest, or
        FailedPrecondition when the client expects the identity of another model.
        """
        if setup.profile not in profile_pb2.Profile.values():
            raise InvalidRequest(f"setup.profile is {setup.profile}, which is no profile")
        prompt = Prompt(
            _ids(
                "setup.prompt_text_ids",
                setup.prompt_text_ids,
                self._backend.text_vocabulary,
                most=MOST_ARRIVING_IDS,
            ),
            _ids(
                "setup.prompt_speech_tokens",
                setup.prompt_speech_tokens,
                SPEECH_VOCABULARY,
                most=MOST_PROMPT_SPEECH,
            ),
        )
        grouping = Grouping(
            first=_message_size("setup.first_message_tokens", setup.first_message_tokens),
            rest=_message_size("setup.message_tokens", setup.message_tokens),
            silent=self._silent,
        )
        replay = _ids("setup.replay_tokens", setup.replay_tokens, SPEECH_VOCABULARY, most=MOST_TOKENS)
        if setup.HasField("expected_identity"):
            self._backend.identity.require(identity_from_proto(setup.expected_identity))
        profile = Profile.UPSTREAM if setup.profile == profile_pb2.PROFILE_UPSTREAM else Profile.CONTINUOUS
        sampling = Sampling(seed=setup.seed, sentence_index=setup.sentence_index, profile=profile)
        return Generation(
            prompt=prompt,
            text=text,
            sampling=sampling,
            grouping=grouping,
            replay=replay,
            guarded=setup.guards,
            deadline=deadlines.until(),
        )

    async def _responses(
        self, generation: Generation, received: list[int], context: ServicerContext[Any, Any], result: FirstResult
    ) -> AsyncGenerator[llm_pb2.SpeechTokens]:
        """One message per hop; the first has the identity, the last the summary. Timings of the
        hops are recorded as spans of the call. received: the text ids of the sentence that have
        arrived so far; it grows while text arrives. Raises what the backend and the guards raise.
        """
        first, tokens, unchecked = True, list(generation.replay), generation.replay
        guards = TokenGuards(generation.prompt, self._backend.lengths, received) if generation.guarded else None
        async with contextlib.aclosing(self.measured.generate(generation)) as hops:
            async for hop in hops:
                tokens += hop.tokens
                if hop.tokens:
                    result.made()
                for timing in hop.timings:
                    telemetry.record(timing)
                if guards:
                    # An empty hop reports only acceptance or progress of a replay. Replayed tokens
                    # are checked later, with the first new ones, because the guards need text that
                    # may not have arrived yet.
                    if hop.tokens or hop.outcome:
                        guards.see([*unchecked, *hop.tokens])
                        unchecked = ()
                    guards.end(hop)
                message = llm_pb2.SpeechTokens(tokens=hop.tokens)
                if first:
                    # Initial metadata says that the backend has accepted the sentence.
                    await context.send_initial_metadata(())
                    message.identity.CopyFrom(identity_to_proto(self._backend.identity))
                    message.text_starts_follow = self._backend.alignment is not None
                    if self._silent is not None:
                        message.silent_tokens.extend(sorted(self._silent.ids))
                        message.longest_silent_run = self._silent.longest_run
                if (outcome := hop.outcome) is not None:
                    message.summary.CopyFrom(
                        llm_pb2.GenerateSummary(
                            finish_reason=_REASONS[outcome.reason],
                            tokens=outcome.tokens,
                            queue_milliseconds=outcome.queue.milliseconds,
                            prefill_milliseconds=outcome.prefill.milliseconds,
                            decode_milliseconds=outcome.decode.milliseconds,
                        )
                    )
                    if (table := self._backend.alignment) is not None:
                        aligned = asyncio.to_thread(
                            _aligned, table, tuple(received), tokens, guarded=generation.guarded
                        )
                        message.summary.text_starts.extend(await aligned)
                first = False
                yield message


def _aligned(table: AlignmentTable, text_ids: tuple[int, ...], tokens: list[int], *, guarded: bool) -> list[int]:
    """For each text id the index of the speech token at which it begins; empty if the alignment is
    unknown. Raises Repeated when `guarded` and words were spoken twice.
    """
    starts = table.starts(text_ids, tokens) or []
    if guarded and starts:
        require_no_repetition(table, text_ids, tokens)
    return starts


def _ids(field: str, values: Sequence[int], below: int, *, least: int = 0, most: int) -> tuple[int, ...]:
    """`least` to `most` ids, each 0 to below - 1. Raises InvalidRequest naming the first invalid
    id.
    """
    if not least <= len(values) <= most:
        raise InvalidRequest(f"{field} has {len(values)} ids, allowed are {least} to {most}")
    for index, value in enumerate(values):
        if not 0 <= value < below:
            raise InvalidRequest(f"{field}[{index}] is {value}, allowed 0 to {below - 1}")
    return tuple(values)


def _message_size(field: str, value: int) -> int:
    """Tokens per message: 1 to 400, 0 for the default. Raises InvalidRequest."""
    if not 0 <= value <= MOST_IN_MESSAGE:
        raise InvalidRequest(f"{field} is {value}, allowed 1 to {MOST_IN_MESSAGE}, or 0 for {DEFAULT_IN_MESSAGE}")
    return value or DEFAULT_IN_MESSAGE
