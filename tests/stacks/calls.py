"""How a test holds a call: in both directions, to its end, until it is refused."""

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
import pytest

from cosyserve.client.speech import Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.types import Header, Summary

Piece = TypeVar("Piece")


async def conversation(call: Any, messages: Iterable[Any]) -> list[Any]:
    """Write the first message, wait until it is accepted or refused, write the others; returns all
    responses, raises the call's status.

    A write that crosses a refusal would replace its status by grpc's own, hence the wait.
    """

    async def pour() -> None:
        try:
            for number, message in enumerate(messages):
                await call.write(message)
                if number == 0:
                    await call.initial_metadata()
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # reading raises the reason

    pouring = asyncio.create_task(pour())
    try:
        return await all_of(call)
    finally:
        await pouring


async def all_of(call: AsyncIterable[Any]) -> list[Any]:
    """All responses."""
    return [response async for response in call]


async def rest(call: Any) -> list[Any]:
    """The responses that are still to come of a call that was read by hand."""
    responses = []
    while (response := await call.read()) is not grpc.aio.EOF:
        responses.append(response)
    return responses


def check_places(responses: list[Any]) -> None:
    """Each message begins where the one in front of it ended, the first at the start."""
    sizes = [len(response.audio) // 2 for response in responses]
    assert [response.start_sample for response in responses] == [0, *itertools.accumulate(sizes)][:-1]


async def one_by_one(pieces: Iterable[Piece], seconds: float = 0.0) -> AsyncIterator[Piece]:
    """The pieces as a caller writes them, each followed by so many seconds without any."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(seconds)


async def heard(speech: Speech | StreamingSpeech) -> tuple[bytes, Header, Summary]:
    """All sound of an utterance, with its header and summary."""
    audio = await speech.read()
    assert speech.header is not None
    assert speech.summary is not None
    return audio, speech.header, speech.summary


async def refusal(answer: Awaitable[Any], code: grpc.StatusCode | None = None, *said: str) -> grpc.aio.AioRpcError:
    """The error of a call that fails: with status `code`, and with each text of `said` in its
    details.
    """
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    error, details = caught.value, caught.value.details() or ""
    assert code in (None, error.code()), error
    assert [text for text in said if text not in details] == [], details
    return error


async def refused(answer: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Status and details of a call that fails."""
    error = await refusal(answer)
    return error.code(), error.details() or ""


async def until(done: Callable[[], object], seconds: float = 20) -> None:
    """Wait until `done` returns what is true. Raises TimeoutError after so many seconds."""
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0.01)
