"""What a replica says of itself from moment to moment: its health, and its load."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import grpc
from grpc_health.v1 import health_pb2

from cosyserve.rpc.calls import messages
from cosyserve.rpc.load.reported import Balanced, Reported
from cosyserve.rpc.tls.channels import RenewedChannel
from cosyserve.rpc.transport import CONNECT_SECONDS
from cosyserve.tasks import cancel_all
from cosyserve.v1 import info_pb2, info_pb2_grpc

_LEAST_MILLISECONDS: Final = 200
_MILLISECONDS_EACH: Final = 10
_MOST_MILLISECONDS: Final = 60_000
_AGAIN_SECONDS: Final = 1.0
_WITHOUT: Final = (
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
"""Answers of a replica that will not report, such as one of an earlier release."""


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


async def watch_load(channel: grpc.aio.Channel, replica: Balanced, replicas: int) -> None:
    """Keep `replica.reported` until cancelled; return if it never reports. replicas: whose load is
    followed at the same time: all of them report 100 times a second at most.
    """
    stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
    interval = min(max(_LEAST_MILLISECONDS, _MILLISECONDS_EACH * replicas), _MOST_MILLISECONDS)
    request = info_pb2.WatchLoadRequest(min_interval_milliseconds=interval)
    while True:
        call = stub.WatchLoad(request, wait_for_ready=True)
        try:
            async for news in messages(call):
                replica.reported = Reported(news.other_calls, news.capacity, news.callers, replica.begun)
        except grpc.aio.AioRpcError as error:
            if error.code() in _WITHOUT:
                return
        finally:
            replica.reported = None
            call.cancel()
        await asyncio.sleep(_AGAIN_SECONDS)
