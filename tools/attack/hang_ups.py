"""Hundreds of calls that are cancelled as soon as they are made: is every place freed, and what
stays in memory?
"""

import asyncio
from typing import Any

from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tools.attack.target import Finding, Memory, Target

_ROUNDS, _CALLS = 10, 50
_MOST_MEGABYTES = 100.0
_MOST_SECONDS = 5.0


async def hang_ups(target: Target) -> Finding:
    request = synthesis_pb2.SynthesizeRequest(text="No caller waits for this sentence. " * 100)
    async with target.channel() as channel, Memory(target) as memory:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        for number in range(_ROUNDS):
            calls = [stub.Synthesize(request) for _ in range(_CALLS)]
            await asyncio.sleep(0.01 * number)
            for call in calls:
                call.cancel()
        await target.until_idle()
    waited = await target.tiny()
    return Finding(
        f"{_ROUNDS * _CALLS} calls, {memory.grown:.0f} MB more held, all places free; a tiny request answered after "
        f"{waited:.2f} s",
        f"{_MOST_MEGABYTES:.0f} MB, {_MOST_SECONDS:.0f} s",
        memory.grown <= _MOST_MEGABYTES and waited <= _MOST_SECONDS,
    )
