"""The speech-token LLM as the pipeline calls it: one sentence's text ids, all of them or as they
come, to its speech tokens.
"""

import asyncio
import time
from typing import cast

import grpc

from cosyserve import spec, telemetry
from cosyserve.errors import InternalFault
from cosyserve.rpc.identity import identity_from_proto, identity_to_proto
from cosyserve.rpc.reads import messages
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import llm_pb2, llm_pb2_grpc, profile_pb2
from services.orchestrator.speech.conditioning import Shown
from services.orchestrator.speech.missing_words import require_all_words
from services.orchestrator.speech.token_stream import Made, TokenStream
from services.orchestrator.speech.utterance import OpenSentence, Sentence, Utterance, tokens_to_first_border
from services.orchestrator.stages.engine_choice import Engines
from services.orchestrator.stages.failover import Patience, Pulse, carried_on, hung_up

GenerateCall = grpc.aio.StreamStreamCall[llm_pb2.GenerateStreamRequest, llm_pb2.GenerateStreamResponse]


class LlmStage:
    """Generation is carried on by another replica when one fails: it is told the tokens already
    made and goes on behind them.
    """

    def __init__(self, replicas: ReplicaSet, patience: Patience, guards: bool) -> None:
        self.replicas = replicas
        self._patience = patience
        self.guards = guards
        """Whether tokens and the times of words are checked."""

    async def generate(self, utterance: Utterance, shown: Shown, stream: TokenStream, engines: Engines) -> int:
        """Write the speech tokens of `stream.sentence` into `stream`. Returns the number of
        takeovers. Raises the SpeechFault that the stage or the times of the words give away."""
        setup = _setup(utterance, shown, stream, self.guards)
        if engines.llm is not None:
            setup.expected_identity.CopyFrom(identity_to_proto(engines.llm))
        begin = time.monotonic()
        first_message: float | None = None

        def take(news: llm_pb2.SpeechTokens) -> None:
            nonlocal first_message
            if news.HasField("identity"):
                setup.expected_identity.CopyFrom(news.identity)
                engines.llm = identity_from_proto(news.identity)
                stream.accept(tells_starts=news.text_starts_follow)
            if news.tokens:
                first_message = first_message or time.monotonic()
                stream.extend(news.tokens)
            if news.HasField("summary"):
                made = _made(news.summary, (first_message or time.monotonic()) - begin)
                if self.guards:
                    require_all_words(stream.sentence, made, len(stream.tokens))
                stream.finish(made)

        async def attempt(replica: Replica, pulse: Pulse) -> None:
            del setup.replay_tokens[:]
            setup.replay_tokens.extend(stream.tokens)
            stub = cast("llm_pb2_grpc.LlmServiceAsyncStub", llm_pb2_grpc.LlmServiceStub(replica.channel))
            sentence, metadata = stream.sentence, telemetry.outgoing()
            if isinstance(sentence, Sentence):
                request = llm_pb2.GenerateRequest(setup=setup, text_ids=sentence.token_ids)
                with hung_up(stub.Generate(request, metadata=metadata)) as call:
                    async for response in messages(call):
                        pulse.beat()
                        take(response.tokens)
            else:
                with hung_up(stub.GenerateStream(metadata=metadata)) as open_call:
                    async with asyncio.TaskGroup() as group:
                        pouring = group.create_task(_pour(open_call, setup, sentence, pulse))
                        async for streamed in messages(open_call):
                            pulse.beat()
                            take(streamed.tokens)
                        pouring.cancel()
            if stream.made is None:
                raise InternalFault(f"{self.replicas.stage} ended a sentence without its summary")
            if not stream.tokens:
                raise InternalFault(f"{self.replicas.stage} made no speech for sentence {stream.sentence.index}")

        return await carried_on(self.replicas, self._patience, attempt, under_way=stream.sentence.index > 0)


async def _pour(call: GenerateCall, setup: llm_pb2.GenerateSetup, sentence: OpenSentence, pulse: Pulse) -> None:
    """Write the setup and, once it is accepted, the ids as they come. While the sentence is open
    the stage may wait for text, so it owes nothing. A write on a dead call is passed over, as in
    token2wav_stage.
    """
    try:
        await call.write(llm_pb2.GenerateStreamRequest(setup=setup))
        await call.initial_metadata()
        with pulse.paused():
            async for ids in sentence.read():
                await call.write(llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=ids)))
            await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return


def _setup(utterance: Utterance, shown: Shown, stream: TokenStream, guards: bool) -> llm_pb2.GenerateSetup:
    first_hop = tokens_to_first_border(len(shown.speech_tokens), utterance.first_hop_tokens)
    return llm_pb2.GenerateSetup(
        prompt_text_ids=shown.text_ids,
        prompt_speech_tokens=shown.heard_tokens,
        seed=stream.seed,
        guards=guards,
        sentence_index=stream.sentence.index,
        profile=cast("profile_pb2.Profile.ValueType", utterance.profile),
        # The decoder can begin when the first hop and its look-ahead are there: a message then, not
        # a token sooner or later.
        first_message_tokens=first_hop + spec.LOOKAHEAD_TOKENS,
        message_tokens=spec.CHUNK_TOKENS,
    )


def _made(summary: llm_pb2.GenerateSummary, seconds_to_first_message: float) -> Made:
    prefill = summary.queue_milliseconds + summary.prefill_milliseconds
    decode = max(0.0, seconds_to_first_message * 1000 - prefill)
    return Made(prefill, decode, summary.decode_milliseconds, tuple(summary.text_starts))
