"""The first message of each kind of call over real gRPC: half sent, missing, undecodable; and how
much of it is held.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.rpc.server import Service, running
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.unit.cosyserve.rpc.small_service import NAME, SETTINGS, loader, one_chunk, reached, status_of
from tools.attack.raw_http2 import RawConnection, connected

SYNTHESIZE = f"/{NAME}/Synthesize"


@contextlib.asynccontextmanager
async def attacked(first_message_seconds: float = 0.5, **settings: Any) -> AsyncIterator[tuple[Service, RawConnection]]:
    told = replace(SETTINGS, first_message_seconds=first_message_seconds, **settings)
    async with running(NAME, told, loader(one_chunk)) as service, connected(f"127.0.0.1:{service.port}") as raw:
        async with asyncio.timeout(5):
            await raw.settled()
        yield service, raw


async def until_ended(raw: RawConnection, stream: int) -> bytes:
    async with asyncio.timeout(5):
        while stream not in raw.ended:
            await raw.changed()
    return raw.ended[stream]


@pytest.mark.parametrize(
    ("method", "begun"),
    [
        (SYNTHESIZE, True),
        (SYNTHESIZE, False),
        (f"/{NAME}/ListVoices", True),
        (f"/{NAME}/StreamingSynthesize", True),
        ("/grpc.health.v1.Health/Check", True),
    ],
)
async def test_a_message_that_is_never_complete_ends_the_call_in_time(method: str, begun: bool) -> None:
    async with attacked() as (_, raw):
        begin = time.monotonic()
        stream = raw.call(method)
        if begun:
            await raw.send(stream, b"\x0a", announced=1_000_000, end=False)
        status = await until_ended(raw, stream)
        assert 0.4 < time.monotonic() - begin < 3
        assert b"the first message was not complete after 0.5 s" in status


async def test_a_call_that_waits_for_its_turn_is_not_read() -> None:
    """Its unread bytes are a window, whatever it has announced."""
    async with attacked(max_incoming_messages=1, first_message_seconds=5.0) as (_, raw):
        body = bytes(4_000_000)
        holder, waiting = raw.call(SYNTHESIZE), raw.call(SYNTHESIZE)
        assert await raw.send(holder, body, announced=4_000_001, end=False) == len(body)
        sending = asyncio.create_task(raw.send(waiting, body, announced=4_000_001, end=False))
        done, _ = await asyncio.wait((sending,), timeout=0.3)
        assert not done
        assert raw.sent[waiting] <= 64 * 1024
        # A second later the holder has had its time, and the turn goes on.
        assert b"when other calls had to be read" in await until_ended(raw, holder)
        assert await asyncio.wait_for(sending, 5) == len(body)


async def test_a_small_request_is_answered_beside_half_sent_ones() -> None:
    async with attacked(max_incoming_messages=2, first_message_seconds=30.0) as (service, raw):
        for _ in range(8):
            await raw.send(raw.call(SYNTHESIZE), b"\x0a", announced=1_000_000, end=False)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel, asyncio.timeout(4):
            call = synthesis_pb2_grpc.SynthesisServiceStub(channel).Synthesize(
                synthesis_pb2.SynthesizeRequest(text="now")
            )
            assert [message.audio async for message in call] == [b"now"]


@pytest.mark.parametrize("attacked_method", [SYNTHESIZE, "/grpc.health.v1.Health/Check"])
async def test_calls_that_never_send_starve_neither_health_nor_a_request(attacked_method: str) -> None:
    async with attacked(max_incoming_messages=8, first_message_seconds=30.0) as (service, raw):

        async def attack() -> None:
            while True:
                raw.call(attacked_method)
                await asyncio.sleep(0.02)

        attacking = asyncio.create_task(attack())
        try:
            async with grpc.aio.insecure_channel(
                f"127.0.0.1:{service.port}", options=[("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                health: Any = health_pb2_grpc.HealthStub(channel)
                for _ in range(4):
                    await asyncio.sleep(0.5)
                    await health.Check(health_pb2.HealthCheckRequest(), timeout=1)
                    call = synthesis_pb2_grpc.SynthesisServiceStub(channel).Synthesize(
                        synthesis_pb2.SynthesizeRequest(text="now"), timeout=1
                    )
                    assert [message.audio async for message in call] == [b"now"]
        finally:
            attacking.cancel()


async def test_connections_and_streams_are_limited() -> None:
    async with attacked(max_connections=2, max_streams_per_connection=7) as (service, raw):
        assert raw.most_streams == 7
        address = f"127.0.0.1:{service.port}"
        async with connected(address) as second, asyncio.timeout(5):
            await second.settled()
            assert not second.closed.is_set()
            async with connected(address) as third:
                await third.closed.wait()
        # The server needs a moment to see that one has closed; until then further ones are closed,
        # too.
        async with asyncio.timeout(5):
            while True:
                async with connected(address) as again:
                    await again.settled()
                    if not again.closed.is_set():
                        break


@pytest.mark.parametrize("streamed", [False, True])
async def test_bytes_that_are_no_message_are_the_callers_fault(streamed: bool) -> None:
    async def reads(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for _ in requests:
            yield synthesis_pb2.SynthesizeResponse()

    async with reached(loader(one_chunk, streaming=reads)) as channel:
        if streamed:
            good = synthesis_pb2.StreamingSynthesizeRequest().SerializeToString()
            method: Any = channel.stream_stream(f"/{NAME}/StreamingSynthesize")
            error = await status_of(method(iter([good, b"\xff\xff\xff"])))
        else:
            error = await status_of(channel.unary_stream(SYNTHESIZE)(b"\xff\xff\xff"))  # type: ignore[arg-type]
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the message of 3 bytes cannot be decoded as one of this method"


async def test_a_unary_call_without_a_message_is_refused() -> None:
    async with attacked() as (_, raw):
        stream = raw.call(f"/{NAME}/ListVoices")
        raw.end(stream)
        assert b"the call ended without a message" in await until_ended(raw, stream)


async def test_health_answers_as_before() -> None:
    async with reached(loader(one_chunk), first_message_seconds=0.5) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        # The time limit is that of the first message alone.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(watch.read())), 0.8)
        watch.cancel()
