"""Work that ends when its caller hangs up, for answers that are no stream."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from cosyserve.errors import CallerStalled
from services.gateway.speech.request_record import current_record

T = TypeVar("T")


async def unless_hung_up(request: Request, working: Coroutine[Any, Any, T]) -> T:
    """The result of `working`, which is cancelled as soon as the caller hangs up. Raises
    CallerStalled then, which no one reads. The body of the request has to be read before.
    """
    work = asyncio.create_task(working)
    leaving = asyncio.create_task(until_hung_up(request.receive))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            current_record().hung_up()
            raise CallerStalled("the caller hung up")
        return work.result()
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.wait((work, leaving))


async def until_hung_up(receive: Receive) -> None:
    """Return when the connection has ended."""
    while (await receive())["type"] != "http.disconnect":
        pass
