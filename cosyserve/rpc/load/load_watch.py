"""Follows what a replica reports about its load."""

import asyncio
from typing import Final, cast

import grpc

from cosyserve.rpc.calls import messages
from cosyserve.rpc.load.reported import Balanced, Reported
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
