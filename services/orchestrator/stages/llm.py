"""Client of the speech-token LLM: the text ids of one sentence, complete or as they come, to its
speech tokens.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from cosyserve import spec, telemetry
from cosyserve.errors import InternalFault
from cosyserve.generations.generation import SilentTokens
from cosyserve.rpc.calls import messages
from cosyserve.rpc.deadlines import for_stage
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.rpc.service_info import identity_from_proto, identity_to_proto
from cosyserve.v1 import llm_pb2, llm_pb2_grpc, profile_pb2
from services.orchestrator.faults.work import sentence_work
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Utterance, tokens_to_first_border
from services.orchestrator.speech.word_alignment import require_all_words
from services.orchestrator.stages.engines import Engines
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover, cancelling, pour
from services.orchestrator.stages.prompt_cut import PromptCut
from services.orchestrator.stages.token2wav import is_served_profile


@dataclass(frozen=True)
class LlmStage:
    """When a replica fails, another one gets the tokens generated so far and continues
    after them.
    """

    replicas: ReplicaSet
    policy: RetryPolicy
    guards: bool
    """Whether tokens and word times are checked."""
    prompt_as_block: Callable[[], bool] = lambda: False
    """See `OrchestratorSettings`."""
    cut: PromptCut = field(default_factory=PromptCut)
    """That of the decoder, which may be learned later than the first request comes: then its
    messages are cut elsewhere, and the decoder has to wait longer.
    """

    async def generate(
        self, utterance: Utterance, conditioning: Conditioning, stream: TokenStream, engines: Engines
    ) -> int:
        """Write the speech tokens of `stream.sentence` into `stream`. Returns the number of
        takeovers. Raises the SpeechFault that the stage or the word times show.
        """
        prompt_tokens = 0 if self.prompt_as_block() else len(conditioning.speech_tokens)
        least = utterance.first_hop_tokens
        first_hop = (
            self.cut.first_hop(prompt_tokens, least, engines.token2wav)
            if is_served_profile(utterance)
            else tokens_to_first_border(prompt_tokens, least)
        )
        setup = _setup(utterance, conditioning, stream, self.guards, first_hop)
        if engines.llm is not None:
            setup.expected_identity.CopyFrom(identity_to_proto(engines.llm))
        begin = time.monotonic()
        first_message: float | None = None

        def take(news: llm_pb2.SpeechTokens) -> None:
            nonlocal first_message
            if news.HasField("identity"):
                setup.expected_identity.CopyFrom(news.identity)
                engines.llm = identity_from_proto(news.identity)
                engines.silent = _silent(news, self.replicas.stage)
                stream.accept(has_text_starts=news.text_starts_follow, silent=engines.silent)
            if news.tokens:
                first_message = first_message or time.monotonic()
                stream.extend(news.tokens)
            if news.HasField("summary"):
                summary, waited = news.summary, (first_message or time.monotonic()) - begin
                prefill = summary.queue_milliseconds + summary.prefill_milliseconds
                first_hop = max(0.0, 1000 * waited - prefill)
                timing = GenerationTiming(prefill, first_hop, summary.decode_milliseconds, tuple(summary.text_starts))
                if self.guards:
                    require_all_words(stream.sentence, timing, len(stream.tokens))
                stream.finish(timing)

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            del setup.replay_tokens[:]
            setup.replay_tokens.extend(stream.tokens)
            stub = cast("llm_pb2_grpc.LlmServiceAsyncStub", llm_pb2_grpc.LlmServiceStub(replica.channel))
            sentence, metadata = stream.sentence, telemetry.outgoing()
            if sentence.whole:
                request = llm_pb2.GenerateRequest(setup=setup, text_ids=sentence.pieces[0])
                with cancelling(stub.Generate(request, metadata=metadata, timeout=for_stage())) as call:
                    async for response in messages(call):
                        timer.beat()
                        take(response.tokens)
            else:
                # While the sentence is open, the stage may be waiting for text, so it owes no
                # response.
                texts = (
                    llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=ids))
                    async for ids in timer.paused_between(sentence.read())
                )
                with cancelling(stub.GenerateStream(metadata=metadata, timeout=for_stage())) as open_call:
                    async with asyncio.TaskGroup() as group:
                        pouring = group.create_task(pour(open_call, llm_pb2.GenerateStreamRequest(setup=setup), texts))
                        async for streamed in messages(open_call):
                            timer.beat()
                            take(streamed.tokens)
                        pouring.cancel()
            if stream.timing is None:
                raise InternalFault(f"{self.replicas.stage} ended a sentence without its summary")
            if not stream.tokens:
                raise InternalFault(f"{self.replicas.stage} made no speech for sentence {stream.sentence.index}")

        work = sentence_work(self.replicas.stage, utterance, conditioning, stream)
        return await call_with_failover(
            self.replicas, self.policy, attempt, under_way=stream.sentence.index > 0, work=work
        )


def _setup(
    utterance: Utterance, conditioning: Conditioning, stream: TokenStream, guards: bool, first_hop: int
) -> llm_pb2.GenerateSetup:
    return llm_pb2.GenerateSetup(
        prompt_text_ids=conditioning.text_ids,
        prompt_speech_tokens=conditioning.llm_prompt_tokens,
        seed=stream.seed,
        guards=guards,
        sentence_index=stream.sentence.index,
        profile=cast("profile_pb2.Profile.ValueType", utterance.profile),
        # The decoder can begin when the first hop and its look-ahead are there: the first message
        # has exactly those tokens.
        first_message_tokens=first_hop + spec.LOOKAHEAD_TOKENS,
        message_tokens=spec.CHUNK_TOKENS,
    )


def _silent(accepted: llm_pb2.SpeechTokens, stage: str) -> SilentTokens | None:
    """The tokens of which long runs are not spoken. Raises InternalFault for a longest run of 0,
    which would leave out every silence of the speech.
    """
    if not accepted.silent_tokens:
        return None
    if accepted.longest_silent_run < 1:
        raise InternalFault(
            f"{stage} names {len(accepted.silent_tokens)} silent_tokens and a longest_silent_run of "
            f"{accepted.longest_silent_run}, which is at least 1"
        )
    return SilentTokens(ids=frozenset(accepted.silent_tokens), longest_run=accepted.longest_silent_run)
