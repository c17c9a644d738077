"""Streams on which nothing is written hold their places only while no other request needs one."""

import asyncio
from functools import partial
from typing import Any

import grpc
import pytest

from cosyserve.rpc import service_info
from cosyserve.rpc.peers import require_peer
from cosyserve.v1 import info_pb2, info_pb2_grpc
from tests.pipeline.calling import IMPATIENT, TEXT, all_idle, audio_of, busy, hang, speak, spoken
from tests.pipeline.text.test_text_streams import opened, setup, texts
from tests.stacks.calls import refusal, rest
from tests.stacks.scripted_stages import Stack, expected_audio, stack


async def admitted(running: Stack, *fragments: str) -> Any:
    """A StreamingSynthesize that is admitted, and stays open."""
    call = await opened(running, setup())
    await call.initial_metadata()
    for message in texts(*fragments):
        await call.write(message)
    return call


@pytest.mark.start(**IMPATIENT, max_streams=4)
async def test_streams_of_empty_text_keep_no_request_out(running: Stack) -> None:
    calls = [await admitted(running, "", " ") for _ in range(4)]
    await spoken(running)
    ended = calls[0]
    assert await ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "another request needed the place of this stream, on which there was no text" in await ended.details()
    for call in calls[1:]:
        assert not call.done()
        call.cancel()
    await all_idle(running)


@pytest.mark.start(**IMPATIENT, max_streams=1)
async def test_a_stream_that_was_written_to_keeps_its_place(running: Stack) -> None:
    call = await admitted(running, "one sentence ")
    await asyncio.sleep(0.1)
    await refusal(speak(running), grpc.StatusCode.RESOURCE_EXHAUSTED)
    for message in texts("after another"):
        await call.write(message)
    await call.done_writing()
    assert audio_of(await rest(call)) == expected_audio(TEXT)


@pytest.mark.start(**IMPATIENT, max_streams=1)
async def test_a_stream_that_lost_its_place_does_not_free_another_one(running: Stack) -> None:
    running.scripts["token2wav"][0].decode = hang
    await admitted(running)
    speaking = asyncio.create_task(speak(running))
    await busy(running, "token2wav")
    await refusal(speak(running), grpc.StatusCode.RESOURCE_EXHAUSTED)
    speaking.cancel()
    await asyncio.gather(speaking, return_exceptions=True)


@pytest.mark.start(max_streams=1, idle_seconds=1.0, reader_seconds=20.0)
async def test_a_caller_who_takes_its_audio_slowly_keeps_its_place(running: Stack) -> None:
    """For longer than a place may be idle, and no longer than a caller may take no audio."""
    text = "x" * 1600 + " "
    call = running.stub.StreamingSynthesize(timeout=60)
    for message in (setup(idle=60_000), *texts(text)):
        await call.write(message)
    await call.done_writing()
    await busy(running, "token2wav")
    for _ in range(8):
        await asyncio.sleep(0.5)
        await refusal(speak(running), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert audio_of(await rest(call)) == expected_audio(text)


async def warm_up(running: Stack) -> None:
    stub: Any = info_pb2_grpc.InfoServiceStub(running.channel)
    await stub.WarmUp(info_pb2.WarmUpRequest(), timeout=10)


@pytest.mark.start(**IMPATIENT, max_streams=1)
async def test_a_warm_up_is_admitted_like_a_request(running: Stack) -> None:
    call = await admitted(running, "one sentence ")
    await asyncio.sleep(0.1)
    await refusal(warm_up(running), grpc.StatusCode.RESOURCE_EXHAUSTED, "1 of 1 streams are in use")
    call.cancel()


async def test_a_warm_up_from_elsewhere_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call over a real connection, whose peer is named as one of another network."""
    elsewhere = partial(require_peer, "ipv4:10.1.2.3:50123")
    monkeypatch.setattr(service_info, "require_peer", lambda _, networks, method: elsewhere(networks, method))
    async with stack(**IMPATIENT) as running:
        await refusal(warm_up(running), grpc.StatusCode.PERMISSION_DENIED)
    async with stack(**IMPATIENT, warm_up_from=("10.0.0.0/8",)) as running:
        await warm_up(running)
