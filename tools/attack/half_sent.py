"""Uploads of 21 MB of which the last kilobyte never comes: what is held of them, and does a tiny
request get through?
"""

import asyncio
import contextlib

from tools.attack.raw_http2 import RawConnection, connected
from tools.attack.target import DOOR, Finding, Memory, Target

_CALLS, _CONNECTIONS, _BYTES = 40, 8, 21_000_000
_MOST_MEGABYTES = 400.0
"""Eight messages of 22 MiB at once (MAX_INCOMING_MESSAGES), and as much again of calls that have
just lost their turn.
"""
_MOST_SECONDS = 5.0


async def half_sent(target: Target) -> Finding:
    body = bytes(_BYTES - 1_000)
    async with contextlib.AsyncExitStack() as held, Memory(target) as memory:
        doors = [await held.enter_async_context(connected(target.address)) for _ in range(_CONNECTIONS)]
        calls = [asyncio.create_task(_upload(doors[number % _CONNECTIONS], body)) for number in range(_CALLS)]
        await asyncio.sleep(1.0)
        waited = await target.tiny()
        await asyncio.sleep(3.0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return Finding(
        f"{memory.grown:.0f} MB more held, a tiny request answered after {waited:.2f} s",
        f"{_MOST_MEGABYTES:.0f} MB, {_MOST_SECONDS:.0f} s",
        memory.grown <= _MOST_MEGABYTES and waited <= _MOST_SECONDS,
    )


async def _upload(connection: RawConnection, body: bytes) -> None:
    await connection.settled()
    await connection.send(connection.call(f"{DOOR}Synthesize"), body, announced=_BYTES, end=False)
