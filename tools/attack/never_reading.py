"""Callers of long texts that never read what they are answered: what is held of it, and is another
caller answered?
"""

import asyncio
import contextlib

from cosyserve.errors import Overloaded
from cosyserve.v1 import synthesis_pb2
from tools.attack.raw_http2 import connected
from tools.attack.target import DOOR, Finding, Memory, Target

_MOST_MEGABYTES = 200.0
_MOST_SECONDS = 3.0


async def never_reading(target: Target) -> Finding:
    places, _ = await target.places()
    request = synthesis_pb2.SynthesizeRequest(
        text="This sentence is heard by no caller at all. " * 400
    ).SerializeToString()
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as held, Memory(target) as memory:
        for _ in range(places):
            door = await held.enter_async_context(connected(target.address))
            await door.settled()
            await door.send(door.call(f"{DOOR}Synthesize"), request)
        await asyncio.sleep(3.0)
        begin = loop.time()
        try:
            await target.tiny()
            answer = "answered"
        except Overloaded as error:
            answer = f"refused, to come back in {error.retry_after or 0.0:.1f} s,"
        took = loop.time() - begin
    await target.until_idle()
    waited = await target.tiny()
    return Finding(
        f"{places} callers, {memory.grown:.0f} MB more held; a tiny request {answer} after {took:.2f} s, when they "
        "were gone answered "
        f"after {waited:.2f} s",
        f"{_MOST_MEGABYTES:.0f} MB, {_MOST_SECONDS:.0f} s",
        memory.grown <= _MOST_MEGABYTES and max(took, waited) <= _MOST_SECONDS,
    )
