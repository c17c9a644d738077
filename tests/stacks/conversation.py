"""A call in both directions, as a careful caller holds it."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc


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
        return [response async for response in call]
    finally:
        await pouring
