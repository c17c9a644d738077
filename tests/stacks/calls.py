"""How a test holds a call: in both directions, to its end, until it is refused."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any

import grpc
import pytest


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
            await asyncio.sleep(0.005)
