"""Places in front of an engine that has no queue of its own."""

import asyncio

import pytest

from services.llm.generation.occupancy import Places


async def test_places_say_who_holds_and_who_waits() -> None:
    places = Places(1, 4)
    assert (places.occupancy.running, places.occupancy.waiting, places.occupancy.oldest) == (0, 0, 0.0)
    async with places:
        waiting = [asyncio.create_task(places.acquire()) for _ in range(2)]
        await asyncio.sleep(0.01)
        found = places.occupancy
        assert (found.running, found.waiting, found.places, found.accepted) == (1, 2, 1, 4)
        assert found.oldest > 0
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert places.occupancy.waiting == 1
    await waiting[1]
    assert (places.occupancy.running, places.occupancy.waiting) == (1, 0)
    places.release()
    assert places.occupancy.running == 0
