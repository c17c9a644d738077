"""Eight texts of nothing but digits, which take the frontend longest, and a tiny request at the
same time.
"""

import asyncio

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from tools.attack.target import Finding, Target

_TEXTS, _CHARACTERS = 8, 19_000
_MOST_SECONDS = 3.0


async def number_texts(target: Target) -> Finding:
    text = "9876543210123 " * (_CHARACTERS // 14)
    async with AsyncClient(target.address) as client:
        calls = [asyncio.create_task(_first(client, text, seed)) for seed in range(_TEXTS)]
        await asyncio.sleep(0.2)
        waits = [await target.tiny() for _ in range(3)]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await target.until_idle()
    return Finding(
        f"tiny requests next to {_TEXTS} texts of {len(text)} digits answered after {max(waits):.2f} s at most",
        f"{_MOST_SECONDS:.0f} s",
        max(waits) <= _MOST_SECONDS,
    )


async def _first(client: AsyncClient, text: str, seed: int) -> None:
    try:
        async with client.synthesize(text, seed=seed) as speech:
            await speech.read()
    except CosyserveError:
        return
