"""More connections than a server needs to take: are some refused, and do callers that are connected
go on?
"""

import asyncio
import contextlib

from cosyserve.client import AsyncClient
from tools.attack.raw_http2 import connected
from tools.attack.target import Finding, Target, tiny

_CONNECTIONS = 600
_MOST_TAKEN = 512
_MOST_SECONDS = 5.0


async def many_connections(target: Target) -> Finding:
    async with AsyncClient(target.address) as before:
        await tiny(before)
        async with contextlib.AsyncExitStack() as held:
            doors = [await held.enter_async_context(connected(target.address)) for _ in range(_CONNECTIONS)]
            await asyncio.gather(*(door.settled() for door in doors))
            taken = sum(not door.closed.is_set() for door in doors)
            waited = await tiny(before)
        begin = asyncio.get_running_loop().time()
        async with asyncio.timeout(_MOST_SECONDS * 4), AsyncClient(target.address) as again:
            await again.synthesize("Yes.", seed=1, resumptions=100).read()
        returned = asyncio.get_running_loop().time() - begin
    return Finding(
        f"{taken} of {_CONNECTIONS} taken, a connected caller answered after {waited:.2f} s, a new one afterwards "
        f"after {returned:.2f} s",
        f"{_MOST_TAKEN} taken, {_MOST_SECONDS:.0f} s",
        taken <= _MOST_TAKEN and max(waited, returned) <= _MOST_SECONDS,
    )
