"""As many text streams as there are places, and more, on which only empty text comes: is a request
that has text refused?
"""

import asyncio
from typing import Any

import grpc

from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tools.attack.target import Finding, Target

_MORE = 4
_MOST_SECONDS = 5.0
Request = synthesis_pb2.StreamingSynthesizeRequest


async def empty_streams(target: Target) -> Finding:
    places, _ = await target.places()
    async with target.channel() as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        calls = [stub.StreamingSynthesize() for _ in range(places + _MORE)]
        await asyncio.gather(*map(_empty, calls), return_exceptions=True)
        waits = [await target.tiny() for _ in range(3)]
        left = sum(not call.done() for call in calls)
        for call in calls:
            call.cancel()
    await target.until_idle()
    return Finding(
        f"{len(calls)} streams for {places} places, {left} left; three requests answered after {max(waits):.2f} s at "
        "most",
        f"no refusal, {_MOST_SECONDS:.0f} s",
        left <= places and max(waits) <= _MOST_SECONDS,
    )


async def _empty(call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
    await call.write(Request(setup=synthesis_pb2.StreamingSynthesizeSetup()))
    await call.initial_metadata()
    for _ in range(3):
        await call.write(Request(text=""))
