"""GenerateStream: which messages it takes in which order, and how long it waits for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest

from cosyserve.errors import DeadlineExceeded
from cosyserve.v1 import llm_pb2
from services.llm.generation.request import Generation, Prompt
from services.llm.servicer import LlmServicer
from tests.contract.llm.llm_service import Setup, served
from tests.stacks.calls import all_of, conversation, refusal, refused
from tests.unit.llm.tiny_llm import backend


async def test_a_stream_out_of_order_is_refused() -> None:
    setup, text = (
        llm_pb2.GenerateStreamRequest(setup=Setup()),
        llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=[1])),
    )
    bad = llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=[300]))
    cases = [
        ([], "no message came, expected the setup"),
        ([text], "the first message carries text, expected the setup"),
        ([llm_pb2.GenerateStreamRequest()], "the first message carries nothing, expected the setup"),
        ([setup, setup], "every message after the first has to be text"),
        ([setup, text, llm_pb2.GenerateStreamRequest()], "every message after the first has to be text"),
        ([setup, bad], "text.ids[0] is 300, allowed 0 to 299"),
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
            await call.write(llm_pb2.GenerateStreamRequest(setup=Setup()))
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
    setup = Setup(prompt_text_ids=range(1, 9), prompt_speech_tokens=said, replay_tokens=said[:25], guards=True)
    requests = [llm_pb2.GenerateStreamRequest(setup=setup)]
    requests += [llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=[number])) for number in text]
    async with backend() as engine, served(engine) as stub:
        call = stub.GenerateStream(timeout=30)
        # Random weights may run on behind the replay: that is another fault.
        [ended] = await asyncio.gather(conversation(call, requests), return_exceptions=True)
        details = ended.details() if isinstance(ended, grpc.aio.AioRpcError) else ""
    assert ("the voice's prompt is being spoken" in (details or "")) is is_fault


async def test_a_refused_setup_is_not_accepted_first() -> None:
    async with backend(max_sequences=1, max_waiting=0) as engine, served(engine) as stub:
        call = stub.GenerateStream(timeout=30)
        async with contextlib.aclosing(engine.generate(Generation(prompt=Prompt(), text=(1,) * 60))) as hops:
            await anext(hops)
            await call.write(llm_pb2.GenerateStreamRequest(setup=Setup()))
            await refusal(all_of(call), grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize("before", [[], [llm_pb2.TextIds(ids=[1, 2, 3, 4, 5])], [llm_pb2.TextIds()]])
async def test_a_stream_on_which_no_text_comes_is_ended(before: list[llm_pb2.TextIds]) -> None:
    async with backend(max_sequences=1, max_waiting=0) as engine, served(engine, idle_seconds=0.2) as stub:
        call = stub.GenerateStream(timeout=30)
        await call.write(llm_pb2.GenerateStreamRequest(setup=Setup()))
        for text in before:
            await call.write(llm_pb2.GenerateStreamRequest(text=text))
        assert await refused(all_of(call)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no text came for 0.2 s")
        assert (engine.engine.stats.waiting, engine.engine.stats.reserved_kv_bytes) == (0, 0)


class Accepting:
    """As much of a call's context as the servicer uses."""

    async def send_initial_metadata(self, metadata: object) -> None:
        assert metadata == ()


async def test_empty_text_is_no_progress() -> None:
    """Without a wire in between: a caller that writes while its call is ended may see an error of
    its own instead of ours.
    """
    fed: list[list[int] | None] = []

    async def babble() -> AsyncIterator[llm_pb2.GenerateStreamRequest]:
        yield llm_pb2.GenerateStreamRequest(setup=Setup())
        while True:
            yield llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds())
            await asyncio.sleep(0.01)

    async with backend() as engine:
        feed = engine.engine.feed
        engine.engine.feed = lambda sequence, ids: (fed.append(ids), feed(sequence, ids))[1]  # type: ignore[method-assign]
        with pytest.raises(DeadlineExceeded, match=r"no text came for 0\.3 s"):
            await all_of(LlmServicer(engine, idle_seconds=0.3).GenerateStream(babble(), Accepting()))  # type: ignore[arg-type]
    assert fed == []


async def test_a_stream_without_its_setup_is_ended() -> None:
    async with backend() as engine, served(engine, first_message_seconds=0.2) as stub:
        expected = (grpc.StatusCode.DEADLINE_EXCEEDED, "the first message was not complete after 0.2 s")
        assert await refused(all_of(stub.GenerateStream(timeout=30))) == expected
