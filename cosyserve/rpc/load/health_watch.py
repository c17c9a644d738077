"""One watch on the health of a replica."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2

from cosyserve.rpc.tls.channels import RenewedChannel
from cosyserve.rpc.transport import CONNECT_SECONDS
from cosyserve.tasks import cancel_all


class Watched(Protocol):
    """channel: on which the watch is. suspected: set when a call failed. gone: its address is no
    longer behind its name.
    """

    channel: grpc.aio.Channel
    suspected: asyncio.Event
    gone: bool


class HealthWatch:
    """heard: called with whether the replica serves."""

    def __init__(
        self, replica: Watched, call: "grpc.aio.UnaryStreamCall[Any, Any]", heard: Callable[[bool], None]
    ) -> None:
        self._replica, self._call, self._heard = replica, call, heard
        self._answered = False

    async def until_over(self) -> str:
        """Follow the health until the watch breaks, the replica is suspected, or its channel was
        renewed; returns which: broken, suspected, renewed.
        """
        # The answer to the watch before counts until this one is answered, but not for long.
        late = asyncio.get_running_loop().call_later(CONNECT_SECONDS, self._unanswered)
        tasks = {
            "broken": asyncio.create_task(self._listen()),
            "suspected": asyncio.create_task(self._replica.suspected.wait()),
        }
        if isinstance(self._replica.channel, RenewedChannel):
            renewed = self._replica.channel.until_renewed(lambda: self._answered)
            tasks["renewed"] = asyncio.create_task(renewed)
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return next(name for name, task in tasks.items() if task.done())
        finally:
            late.cancel()
            await cancel_all(tasks.values())
            self._call.cancel()

    def _unanswered(self) -> None:
        if not self._answered:
            self._heard(False)

    async def _listen(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in self._call:
                self._answered = True
                if self._replica.gone:
                    return
                self._heard(response.status == health_pb2.HealthCheckResponse.SERVING)
