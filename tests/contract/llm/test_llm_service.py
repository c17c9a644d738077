"""LlmService over real gRPC on loopback: responses, refusals with their messages, that cancelling a
call stops the work, and that words that are spoken twice end a guarded call with REPEATED.
GenerateStream: which messages it takes in which order, and how long it waits for them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.errors import CallersDeadline, Repeated
from cosyserve.generations.generation import SilentTokens
from cosyserve.rpc.calls import as_error, retry_delay
from cosyserve.telemetry import Timing
from cosyserve.v1 import llm_pb2, llm_pb2_grpc
from services.llm.__main__ import NAME
from services.llm.backends.fake_backend import FakeBackend
from services.llm.generation.request import Generation, Prompt
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from tests.contract.llm.llm_service import (
    PROMPT,
    Setup,
    generate,
    generate_stream,
    idle,
    joined,
    served,
    setup_message,
    started,
    text_message,
)
from tests.stacks.calls import all_of, conversation, refusal, refused, until
from tests.stacks.up_process import TINY3
from tests.unit.llm.guards.test_alignment import sharp, token
from tests.unit.llm.tiny_llm import backend


class Silences(FakeBackend):
    """Generates a silence of four tokens before what it says."""

    def _tokens(self, generation: Generation, text_id: int, first: int) -> Iterator[int]:
        yield from ([3, 4, 3, 4, 9, 8, 9, 8] if not first else [9, 8])


@pytest.mark.parametrize("kind", ["torch", "fake"])
async def test_messages_are_hops_between_an_identity_and_a_summary(kind: str) -> None:
    async with started(backend=kind) as (_, channel):
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=NAME))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        messages = await generate(stub, seed=3, first_message_tokens=2, message_tokens=3, **PROMPT)
    accepted, first, *middle, last = messages
    assert [len(message.tokens) for message in (first, *middle)] == [2, *[3] * len(middle)]
    assert (accepted.identity.backend, list(accepted.tokens)) == (kind, [])
    assert not any(message.HasField("identity") for message in (first, *middle, last))
    assert not any(message.HasField("summary") for message in (accepted, first, *middle))
    summary = last.summary
    assert (summary.tokens, summary.finish_reason in (1, 2)) == (len(joined(messages)), True)
    assert min(summary.queue_milliseconds, summary.prefill_milliseconds, summary.decode_milliseconds) >= 0


async def test_the_first_message_names_the_tokens_of_silence() -> None:
    silent = SilentTokens(ids=frozenset({7, 3}), longest_run=5)
    async with served(FakeBackend(LlmSettings(listen="127.0.0.1:0", backend="fake")), silent=silent) as stub:
        first, *others = await generate(stub)
    assert (list(first.silent_tokens), first.longest_silent_run) == ([3, 7], 5)
    assert not any(message.silent_tokens or message.longest_silent_run for message in others)


async def test_a_message_has_as_many_spoken_tokens_as_were_asked_for() -> None:
    silent = SilentTokens(ids=frozenset({3, 4}), longest_run=1)
    async with served(Silences(LlmSettings(listen="127.0.0.1:0", backend="fake")), silent=silent) as stub:
        _, first, *_ = await generate(stub, first_message_tokens=2)
    assert list(first.tokens) == [3, 4, 3, 4, 9]


async def test_the_same_request_makes_the_same_tokens_whatever_the_messages() -> None:
    async with backend() as engine, served(engine) as stub:
        whole = joined(await generate(stub, seed=1, **PROMPT))
        cut = await generate(stub, seed=1, first_message_tokens=1, message_tokens=400, **PROMPT)
        assert joined(cut) == whole
        assert len(cut) == 3
        assert joined(await generate(stub, seed=2, **PROMPT)) != whole
        streams = [
            joined(await generate_stream(stub, pieces, seed=1, **PROMPT))
            for pieces in ([range(8)], [[0], [], range(1, 8)])
        ]
        assert streams[0] == streams[1] != []


@pytest.mark.parametrize("kind", ["torch", "fake"])
async def test_replay_continues_behind_the_tokens_of_the_same_engine_only(kind: str) -> None:
    async with started(backend=kind) as (_, channel):
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        messages = await generate(stub, seed=1)
        whole, identity = joined(messages), messages[0].identity
        rest = await generate(stub, seed=1, replay_tokens=whole[:5], expected_identity=identity)
        assert (joined(rest), rest[-1].summary.tokens) == (whole[5:], len(whole))
        identity.model_hash = "other"
        await refusal(
            generate(stub, seed=1, replay_tokens=whole[:5], expected_identity=identity),
            grpc.StatusCode.FAILED_PRECONDITION,
            "model_hash='other'",
        )


@pytest.mark.parametrize("kind", ["torch", "fake"])
async def test_during_a_replay_empty_messages_show_progress(kind: str) -> None:
    async with started(backend=kind) as (_, channel):
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        whole = joined(await generate(stub, seed=1))
        assert len(whole) > 8
        accepted, *messages = await generate(
            stub, seed=1, first_message_tokens=400, message_tokens=4, replay_tokens=whole[:8]
        )
    assert accepted.HasField("identity")
    assert [list(message.tokens) for message in messages] == [[], [], whole[8:]]


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"text": []}, "text_ids has 0 ids, allowed are 1 to 200"),
    ({"text": [1] * 201}, "text_ids has 201 ids, allowed are 1 to 200"),
    ({"text": [1, 300]}, "text_ids[1] is 300, allowed 0 to 299"),
    ({"text": [-1]}, "text_ids[0] is -1, allowed 0 to 299"),
    (
        {"text": [1] * 98},
        "text_ids has 98 ids, which with this prompt may need 2060 positions; this server reserves at most 2048",
    ),
    ({"prompt_text_ids": [300]}, "setup.prompt_text_ids[0] is 300, allowed 0 to 299"),
    ({"prompt_text_ids": [1] * 2049}, "setup.prompt_text_ids has 2049 ids, allowed are 0 to 2048"),
    ({"prompt_speech_tokens": [6561]}, "setup.prompt_speech_tokens[0] is 6561, allowed 0 to 6560"),
    ({"prompt_speech_tokens": [1] * 1501}, "setup.prompt_speech_tokens has 1501 ids, allowed are 0 to 1500"),
    ({"profile": 17}, "setup.profile is 17, which is no profile"),
    ({"first_message_tokens": 401}, "setup.first_message_tokens is 401, allowed 1 to 400, or 0 for 25"),
    ({"message_tokens": -1}, "setup.message_tokens is -1, allowed 1 to 400, or 0 for 25"),
    ({"replay_tokens": [6561]}, "setup.replay_tokens[0] is 6561, allowed 0 to 6560"),
    ({"replay_tokens": [1] * 4097}, "setup.replay_tokens has 4097 ids, allowed are 0 to 4096"),
    ({"replay_tokens": [1] * 61}, "setup.replay_tokens has 61 ids, a sentence of 3 text ids has at most 60"),
]


async def test_every_value_out_of_range_is_refused_by_name() -> None:
    async with backend() as engine, served(engine) as stub:
        for values, message in REFUSALS:
            assert await refused(generate(stub, **values)) == (grpc.StatusCode.INVALID_ARGUMENT, message)
        assert await refused(anext(aiter(stub.Generate(llm_pb2.GenerateRequest(text_ids=[1]))))) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "setup is missing",
        )
        assert engine.engine.stats.prefills == 0


async def test_a_sentence_that_lacks_the_mark_of_its_model_is_refused_before_any_work() -> None:
    """The warm-up and the first measurement have it: the service of CosyVoice3 starts."""
    async with started(model=TINY3, backend="torch") as (_, channel):
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        lacking = "has id 259, the mark <|endofprompt|>, which this model needs before the text"
        for prompt in ({}, PROMPT):
            await refusal(generate(stub, **prompt), grpc.StatusCode.FAILED_PRECONDITION, f"nor text_ids {lacking}")
        # Text that arrives comes too late to bring it.
        await refusal(
            generate_stream(stub, [[1, 259], [2, 3]]),
            grpc.StatusCode.FAILED_PRECONDITION,
            "setup.prompt_text_ids lacks id 259",
        )
        prompted = {"prompt_text_ids": (1, 2, 259, 3), "prompt_speech_tokens": range(40, 60)}
        whole = joined(await generate(stub, seed=1, **prompted))
        assert 6 <= len(whole) <= 60
        assert joined(await generate(stub, (1, 259, 2, 3)))
        streams = [
            joined(await generate_stream(stub, cut, seed=1, **prompted)) for cut in ([range(8)], [[0], range(1, 8)])
        ]
        assert streams[0] == streams[1] != []


async def test_hanging_up_stops_the_work() -> None:
    async with backend() as engine, served(engine) as stub:
        call = stub.Generate(llm_pb2.GenerateRequest(setup=Setup(first_message_tokens=1), text_ids=[1] * 60))
        messages = aiter(call)
        assert not (await anext(messages)).tokens.tokens
        assert (await anext(messages)).tokens.tokens
        assert engine.engine.stats.reserved_kv_bytes > 0
        call.cancel()
        await idle(engine)
        assert engine.engine.stats.reserved_kv_bytes == 0
        assert engine.engine.stats.passes < 60 * 20


async def test_hanging_up_while_text_is_awaited_frees_the_place() -> None:
    async with backend(max_sequences=1, max_waiting=0) as engine, served(engine) as stub:
        call = stub.GenerateStream()
        for message in (setup_message(), text_message(1, 2)):
            await call.write(message)
        await until(lambda: engine.engine.stats.parked)
        call.cancel()
        await idle(engine)
        assert joined(await generate(stub))


async def test_overload_is_refused_at_once_with_a_hint_and_no_accepted_call_is_lost() -> None:
    async with backend(max_sequences=2, max_waiting=2, retry_after_seconds=3) as engine, served(engine) as stub:
        results = await asyncio.gather(
            *(generate(stub, [1] * 20, seed=seed) for seed in range(12)), return_exceptions=True
        )
    refused = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
    assert len(refused) == 8
    assert all(result[-1].HasField("summary") for result in results if not isinstance(result, BaseException))
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert retry_delay(refused[0]) == 3.0


async def test_where_the_time_went_becomes_spans_without_text(spans: list[Timing]) -> None:
    async with backend() as engine, served(engine) as stub:
        await generate(stub, seed=1, first_message_tokens=2, **PROMPT)
    assert [span.name for span in spans] == ["llm.queue", "llm.prefill", "llm.first_hop", "llm.decode"]
    queue, prefill, first_hop, decode = spans
    assert queue.end_ns == prefill.start_ns
    assert prefill.end_ns == first_hop.start_ns == decode.start_ns
    assert (prefill.attributes, first_hop.attributes) == ({"positions": 2 + 9 + 3 + 20}, {"tokens": 2})
    assert set(decode.attributes) == {"tokens"}


IDS = (0, 1, 2, 3, 4, 5)
ONCE = [token(each) for each in IDS for _ in range(4)]
TWICE = [token(each) for each in (0, 1, 2, 3, 4, 1, 2, 3, 4, 5) for _ in range(4)]


class Says(FakeBackend):
    """Generates the given tokens, whatever the text is."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(LlmSettings(listen="127.0.0.1:0", backend="fake"))
        self.alignment = sharp()
        self._said = tokens

    def _tokens(self, generation: Generation, text_id: int, first: int) -> Iterator[int]:
        each = -(-len(self._said) // len(IDS))
        yield from self._said[first : first + each]


@pytest.mark.parametrize("guards", [False, True])
async def test_words_spoken_once_are_returned_with_their_alignment(guards: bool) -> None:
    async with served(Says(ONCE)) as stub:
        messages = await generate(stub, IDS, guards=guards)
    assert joined(messages) == ONCE
    assert messages[0].text_starts_follow
    assert list(messages[-1].summary.text_starts) == [0, 4, 8, 12, 16, 20]


async def test_words_spoken_twice_fail_a_guarded_call() -> None:
    async with served(Says(TWICE)) as stub:
        assert joined(await generate(stub, IDS)) == TWICE
        error = await refusal(generate(stub, IDS, guards=True), grpc.StatusCode.INTERNAL)
    assert isinstance(as_error(error, "llm at here"), Repeated)


async def test_a_stream_out_of_order_is_refused() -> None:
    setup, text = setup_message(), text_message(1)
    cases = [
        ([], "no message came, expected the setup"),
        ([text], "the first message carries text, expected the setup"),
        ([llm_pb2.GenerateStreamRequest()], "the first message carries nothing, expected the setup"),
        ([setup, setup], "every message after the first has to be text"),
        ([setup, text, llm_pb2.GenerateStreamRequest()], "every message after the first has to be text"),
        ([setup, text_message(300)], "text.ids[0] is 300, allowed 0 to 299"),
        ([setup], "text has 0 ids; at least 1 has to arrive before the stream is closed"),
        (
            [setup, *[text] * 98],
            "text has more than 97 ids, the most that this server takes in one stream with this prompt",
        ),
    ]
    async with backend() as engine, served(engine) as stub:
        for requests, message in cases:
            assert await refused(conversation(stub.GenerateStream(timeout=30), requests)) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                message,
            )


async def test_acceptance_is_reported_before_there_is_text_or_a_place() -> None:
    async with backend(max_sequences=1, max_waiting=1) as engine, served(engine) as stub:
        call, full = stub.GenerateStream(timeout=30), Generation(prompt=Prompt(), text=(1,) * 60)
        async with contextlib.aclosing(engine.generate(full)) as hops:
            await anext(hops)
            await call.write(setup_message())
            await call.initial_metadata()
            accepted = await anext(aiter(call))
        assert (accepted.tokens.identity.backend, list(accepted.tokens.tokens)) == ("torch", [])
        call.cancel()


@pytest.mark.parametrize(("text", "is_fault"), [(range(1, 9), False), (range(101, 109), True)])
async def test_a_replay_is_judged_with_the_text_that_it_says(text: range, is_fault: bool) -> None:
    """Words of the prompt that the text has too may sound alike; when a replica takes over, the
    text comes behind the tokens.
    """
    said = list(range(1000, 1030))
    setup = {"prompt_text_ids": range(1, 9), "prompt_speech_tokens": said, "replay_tokens": said[:25], "guards": True}
    async with backend() as engine, served(engine) as stub:
        call = generate_stream(stub, [[number] for number in text], **setup)
        # Random weights may run on behind the replay: that is another fault.
        [ended] = await asyncio.gather(call, return_exceptions=True)
        details = ended.details() if isinstance(ended, grpc.aio.AioRpcError) else ""
    assert ("the voice's prompt is being spoken" in (details or "")) is is_fault


async def test_a_refused_setup_is_not_accepted_first() -> None:
    async with backend(max_sequences=1, max_waiting=0) as engine, served(engine) as stub:
        call = stub.GenerateStream(timeout=30)
        async with contextlib.aclosing(engine.generate(Generation(prompt=Prompt(), text=(1,) * 60))) as hops:
            await anext(hops)
            await call.write(setup_message())
            await refusal(all_of(call), grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize("before", [[], [text_message(1, 2, 3, 4, 5)], [text_message()]])
async def test_a_stream_on_which_no_text_comes_is_ended(before: list[llm_pb2.GenerateStreamRequest]) -> None:
    async with backend(max_sequences=1, max_waiting=0) as engine, served(engine, idle_seconds=0.2) as stub:
        call = stub.GenerateStream(timeout=30)
        for message in (setup_message(), *before):
            await call.write(message)
        assert await refused(all_of(call)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no text came for 0.2 s")
        assert (engine.engine.stats.waiting, engine.engine.stats.reserved_kv_bytes) == (0, 0)


async def test_empty_text_is_no_progress() -> None:
    """Without a wire in between: a caller that writes while its call is ended may see an error of
    its own instead of ours.
    """
    fed: list[list[int] | None] = []

    async def babble() -> AsyncIterator[llm_pb2.GenerateStreamRequest]:
        yield setup_message()
        while True:
            yield text_message()
            await asyncio.sleep(0.01)

    async with backend() as engine:
        feed = engine.engine.feed
        engine.engine.feed = lambda sequence, ids: (fed.append(ids), feed(sequence, ids))[1]  # type: ignore[method-assign]
        with pytest.raises(CallersDeadline, match=r"no text came for 0\.3 s"):
            await all_of(LlmServicer(engine, idle_seconds=0.3).GenerateStream(babble(), AsyncMock()))
    assert fed == []


async def test_a_stream_without_its_setup_is_ended() -> None:
    async with backend() as engine, served(engine, first_message_seconds=0.2) as stub:
        expected = (grpc.StatusCode.DEADLINE_EXCEEDED, "the first message was not complete after 0.2 s")
        assert await refused(all_of(stub.GenerateStream(timeout=30))) == expected
