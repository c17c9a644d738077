"""The speech-token LLM as the pipeline calls it: one sentence's text ids to its speech tokens."""

import time
from typing import cast

from cosyserve import spec, telemetry
from cosyserve.channel import Replica, ReplicaSet
from cosyserve.errors import InternalFault
from cosyserve.v1 import llm_pb2, llm_pb2_grpc, profile_pb2
from services.orchestrator.engine_stage import from_message, to_message
from services.orchestrator.engines import Engines
from services.orchestrator.takeover import Patience, Pulse, carried_on, hung_up
from services.orchestrator.token_stream import Made, TokenStream
from services.orchestrator.utterance import Utterance, Voice, tokens_to_first_border


class LlmStage:
    """Generation is carried on by another replica when one fails: it is told the tokens already made and goes on behind them."""

    def __init__(self, replicas: ReplicaSet, patience: Patience) -> None:
        self.replicas = replicas
        self._patience = patience

    async def generate(self, utterance: Utterance, voice: Voice, stream: TokenStream, engines: Engines) -> int:
        """Write the speech tokens of `stream.sentence` into `stream`. Returns the number of takeovers."""
        request = _request(utterance, voice, stream)
        if engines.llm is not None:
            request.setup.expected_identity.CopyFrom(to_message(engines.llm))
        begin = time.monotonic()
        first_message: float | None = None

        async def attempt(replica: Replica, pulse: Pulse) -> None:
            nonlocal first_message
            del request.setup.replay_tokens[:]
            request.setup.replay_tokens.extend(stream.tokens)
            stub = cast("llm_pb2_grpc.LlmServiceAsyncStub", llm_pb2_grpc.LlmServiceStub(replica.channel))
            with hung_up(stub.Generate(request, metadata=telemetry.outgoing())) as call:
                async for response in call:
                    pulse.beat()
                    news = response.tokens
                    if news.HasField("identity"):
                        request.setup.expected_identity.CopyFrom(news.identity)
                        engines.llm = from_message(news.identity)
                    if news.tokens:
                        first_message = first_message or time.monotonic()
                        stream.extend(news.tokens)
                    if news.HasField("summary"):
                        stream.finish(_made(news.summary, (first_message or time.monotonic()) - begin))
            if stream.made is None:
                raise InternalFault(f"{self.replicas.stage} at {replica.target} ended a sentence without its summary")
            if not stream.tokens:
                raise InternalFault(f"{self.replicas.stage} at {replica.target} made no speech for sentence {stream.sentence.index}")

        return await carried_on(self.replicas, self._patience, attempt, under_way=stream.sentence.index > 0)


def _request(utterance: Utterance, voice: Voice, stream: TokenStream) -> llm_pb2.GenerateRequest:
    first_hop = tokens_to_first_border(len(voice.prompt_speech_tokens), utterance.first_hop_tokens)
    setup = llm_pb2.GenerateSetup(
        prompt_text_ids=voice.prompt_text_ids,
        prompt_speech_tokens=voice.transcribed_speech_tokens,
        seed=utterance.seed,
        sentence_index=stream.sentence.index,
        profile=cast("profile_pb2.Profile.ValueType", utterance.profile),
        # The decoder can begin when the first hop and its look-ahead are there: a message then, not a token sooner or later.
        first_message_tokens=first_hop + spec.LOOKAHEAD_TOKENS,
        message_tokens=spec.CHUNK_TOKENS,
    )
    return llm_pb2.GenerateRequest(setup=setup, text_ids=stream.sentence.token_ids)


def _made(summary: llm_pb2.GenerateSummary, seconds_to_first_message: float) -> Made:
    prefill = summary.queue_milliseconds + summary.prefill_milliseconds
    return Made(prefill, max(0.0, seconds_to_first_message * 1000 - prefill), summary.decode_milliseconds)
