"""Client of the speech-token LLM: the text ids of one sentence, complete or as they come, to its
speech tokens.
"""

import asyncio
import time
from typing import cast

import grpc
from cosyserve.rpc.calls import messages

from cosyserve import spec, telemetry
from cosyserve.errors import InternalFault
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.rpc.service_info import identity_from_proto, identity_to_proto
from cosyserve.v1 import llm_pb2, llm_pb2_grpc, profile_pb2
from services.orchestrator.speech.conditioning import Conditioning
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import OpenSentence, Sentence, Utterance, tokens_to_first_border
from services.orchestrator.speech.word_alignment import require_all_words
from services.orchestrator.stages.failover import Engines, RetryPolicy, StallTimer, call_with_failover, cancelling

GenerateCall = grpc.aio.StreamStreamCall[llm_pb2.GenerateStreamRequest, llm_pb2.GenerateStreamResponse]


class LlmStage:
    """When a replica fails, another one gets the tokens generated so far and continues
    after them.
    """

    def __init__(self, replicas: ReplicaSet, policy: RetryPolicy, guards: bool) -> None:
        self.replicas = replicas
        self._policy = policy
        self.guards = guards
        """Whether tokens and word times are checked."""

    async def generate(
        self, utterance: Utterance, conditioning: Conditioning, stream: TokenStream, engines: Engines
    ) -> int:
        """Write the speech tokens of `stream.sentence` into `stream`. Returns the number of
        takeovers. Raises the SpeechFault that the stage or the word times show.
        """
        setup = _setup(utterance, conditioning, stream, self.guards)
        if engines.llm is not None:
            setup.expected_identity.CopyFrom(identity_to_proto(engines.llm))
        begin = time.monotonic()
        first_message: float | None = None

        def take(news: llm_pb2.SpeechTokens) -> None:
            nonlocal first_message
            if news.HasField("identity"):
                setup.expected_identity.CopyFrom(news.identity)
                engines.llm = identity_from_proto(news.identity)
                stream.accept(has_text_starts=news.text_starts_follow)
            if news.tokens:
                first_message = first_message or time.monotonic()
                stream.extend(news.tokens)
            if news.HasField("summary"):
                timing = _timing(news.summary, (first_message or time.monotonic()) - begin)
                if self.guards:
                    require_all_words(stream.sentence, timing, len(stream.tokens))
                stream.finish(timing)

        async def attempt(replica: Replica, timer: StallTimer) -> None:
            del setup.replay_tokens[:]
            setup.replay_tokens.extend(stream.tokens)
            stub = cast("llm_pb2_grpc.LlmServiceAsyncStub", llm_pb2_grpc.LlmServiceStub(replica.channel))
            sentence, metadata = stream.sentence, telemetry.outgoing()
            if isinstance(sentence, Sentence):
                request = llm_pb2.GenerateRequest(setup=setup, text_ids=sentence.token_ids)
                with cancelling(stub.Generate(request, metadata=metadata)) as call:
                    async for response in messages(call):
                        timer.beat()
                        take(response.tokens)
            else:
                with cancelling(stub.GenerateStream(metadata=metadata)) as open_call:
                    async with asyncio.TaskGroup() as group:
                        pouring = group.create_task(_pour(open_call, setup, sentence, timer))
                        async for streamed in messages(open_call):
                            timer.beat()
                            take(streamed.tokens)
                        pouring.cancel()
            if stream.timing is None:
                raise InternalFault(f"{self.replicas.stage} ended a sentence without its summary")
            if not stream.tokens:
                raise InternalFault(f"{self.replicas.stage} made no speech for sentence {stream.sentence.index}")

        return await call_with_failover(self.replicas, self._policy, attempt, under_way=stream.sentence.index > 0)


async def _pour(call: GenerateCall, setup: llm_pb2.GenerateSetup, sentence: OpenSentence, timer: StallTimer) -> None:
    """Write the setup and, once it is accepted, the ids as they come. While the sentence is open
    the stage may be waiting for text, so it owes no response. A write on a dead call is ignored, as
    in `stages.token2wav`.
    """
    try:
        await call.write(llm_pb2.GenerateStreamRequest(setup=setup))
        await call.initial_metadata()
        with timer.paused():
            async for ids in sentence.read():
                await call.write(llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=ids)))
            await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return


def _setup(
    utterance: Utterance, conditioning: Conditioning, stream: TokenStream, guards: bool
) -> llm_pb2.GenerateSetup:
    first_hop = tokens_to_first_border(len(conditioning.speech_tokens), utterance.first_hop_tokens)
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


def _timing(summary: llm_pb2.GenerateSummary, seconds_to_first_message: float) -> GenerationTiming:
    prefill = summary.queue_milliseconds + summary.prefill_milliseconds
    decode = max(0.0, seconds_to_first_message * 1000 - prefill)
    return GenerationTiming(prefill, decode, summary.decode_milliseconds, tuple(summary.text_starts))
