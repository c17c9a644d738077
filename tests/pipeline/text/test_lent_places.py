"""Streams on which nothing is written hold their places only while no other request needs one."""

import asyncio
from functools import partial
from typing import Any

import grpc
import pytest

from cosyserve.rpc import service_info
from cosyserve.rpc.peers import require_peer
from cosyserve.v1 import info_pb2, info_pb2_grpc
from tests.pipeline.calling import IMPATIENT, TEXT, all_idle, busy, hang, speak, status_of
from tests.pipeline.text.test_text_streams import audio, opened, rest, setup, texts
from tests.stacks.scripted_stages import Stack, expected_audio, stack


async def admitted(running: Stack, *fragments: str) -> Any:
    """A StreamingSynthesize that is admitted, and stays open."""
    call = await opened(running, setup())
    await call.initial_metadata()
    for message in texts(*fragments):
        await call.write(message)
    return call


async def test_streams_of_empty_text_keep_no_request_out() -> None:
    async with stack(**IMPATIENT, max_streams=4) as running:
        calls = [await admitted(running, "", " ") for _ in range(4)]
        heard, _ = await speak(running)
        assert heard == expected_audio(TEXT)
        ended = calls[0]
        assert await ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "another request needed the place of this stream, on which there was no text" in await ended.details()
        for call in calls[1:]:
            assert not call.done()
            call.cancel()
        await all_idle(running)


async def test_a_stream_that_was_written_to_keeps_its_place() -> None:
    async with stack(**IMPATIENT, max_streams=1) as running:
        call = await admitted(running, "one sentence ")
        await asyncio.sleep(0.1)
        assert (await status_of(running)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for message in texts("after another"):
            await call.write(message)
        await call.done_writing()
        assert audio(await rest(call)) == expected_audio(TEXT)


async def test_a_stream_that_lost_its_place_does_not_free_another_one() -> None:
    async with stack(**IMPATIENT, max_streams=1) as running:
        running.scripts["token2wav"][0].decode = hang
        await admitted(running)
        speaking = asyncio.create_task(speak(running))
        await busy(running, "token2wav")
        assert (await status_of(running)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


async def test_a_caller_who_takes_its_audio_slowly_keeps_its_place() -> None:
    """For longer than a place may be idle, and no longer than a caller may take no audio."""
    text = "x" * 1600 + " "
    async with stack(max_streams=1, idle_seconds=1.0, reader_seconds=20.0) as running:
        call = running.stub.StreamingSynthesize(timeout=60)
        for message in (setup(idle=60_000), *texts(text)):
            await call.write(message)
        await call.done_writing()
        await busy(running, "token2wav")
        for _ in range(8):
            await asyncio.sleep(0.5)
            assert (await status_of(running)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert audio(await rest(call)) == expected_audio(text)


async def warm_up_refused(running: Stack) -> grpc.aio.AioRpcError:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.orchestrator.port}") as channel:
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.WarmUp(info_pb2.WarmUpRequest(), timeout=10)
    return caught.value


async def test_a_warm_up_is_admitted_like_a_request() -> None:
    async with stack(**IMPATIENT, max_streams=1) as running:
        call = await admitted(running, "one sentence ")
        await asyncio.sleep(0.1)
        error = await warm_up_refused(running)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 of 1 streams are in use" in (error.details() or "")
        call.cancel()


async def test_a_warm_up_from_elsewhere_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call over a real connection, whose peer is named as one of another network. UNAVAILABLE is
    what scripted stages answer.
    """
    elsewhere = partial(require_peer, "ipv4:10.1.2.3:50123")
    monkeypatch.setattr(service_info, "require_peer", lambda _, networks, method: elsewhere(networks, method))
    for networks, code in (((), grpc.StatusCode.PERMISSION_DENIED), (("10.0.0.0/8",), grpc.StatusCode.UNAVAILABLE)):
        async with stack(**IMPATIENT, warm_up_from=networks) as running:
            assert (await warm_up_refused(running)).code() is code
