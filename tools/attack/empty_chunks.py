"""A WAV file of a million empty chunks, as a recording to convert: is it refused before it takes
long?
"""

import asyncio
import struct

from cosyserve.client import AsyncClient
from cosyserve.errors import FailedPrecondition, InvalidRequest
from tools.attack.target import Finding, Target

_CHUNKS = 1_000_000
_MOST_SECONDS = 2.0


async def empty_chunks(target: Target) -> Finding:
    body = b"WAVE" + b"JUNK\0\0\0\0" * _CHUNKS
    recording = b"RIFF" + struct.pack("<I", len(body)) + body
    begin = asyncio.get_running_loop().time()
    answer = "no refusal"
    async with AsyncClient(target.address) as client:
        tiny = asyncio.create_task(target.tiny())
        try:
            await client.convert_voice(recording, timeout=30.0).read()
        except (InvalidRequest, FailedPrecondition) as error:
            answer = error.code.name
        took = asyncio.get_running_loop().time() - begin
        waited = await tiny
    return Finding(
        f"{answer} after {took:.2f} s, a tiny request next to it answered after {waited:.2f} s",
        f"a refusal after {_MOST_SECONDS:.0f} s",
        answer != "no refusal" and max(took, waited) <= _MOST_SECONDS,
    )
