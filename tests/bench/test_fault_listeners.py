"""Listeners of the bench of faults, through our client and over HTTP, on stages that are
scripted.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bench.faults.listeners import CLIENT, HTTP, Listener, Load
from cosyserve.client import AsyncClient
from tests.stacks.gateway_server import scripted_gateway

TEXTS = ("One sentence. And another one.",)


@pytest.fixture
async def load() -> AsyncIterator[Load]:
    """Knows its speeches; nothing has come yet."""
    async with (
        scripted_gateway(max_streams=64) as (gateway, stack),
        AsyncClient(f"127.0.0.1:{stack.orchestrator.port}") as client,
    ):
        load = Load(client, lambda: [gateway.address])
        await load.learn(TEXTS, range(2))
        yield load


async def heard(load: Load) -> dict[str, list[Listener]]:
    """What became of listeners who came until there was one each way, by way."""
    async with load.arriving(4.0):
        await load.changes.wait_for(lambda: {one.way for one in load.all} == {CLIENT, HTTP})
    assert not load.under_way
    return {way: [one for one in load.all if one.way == way] for way in (CLIENT, HTTP)}


async def test_both_ways_hear_the_same_samples(load: Load) -> None:
    for listeners in (await heard(load)).values():
        assert all(one.identical and one.audio > 0 and not one.error for one in listeners)


async def test_another_sound_is_noticed(load: Load) -> None:
    load.speeches = [replace(speech, digest="of something else") for speech in load.speeches]
    for listeners in (await heard(load)).values():
        assert not any(one.identical or one.error for one in listeners)


async def test_a_refusal_is_an_error(load: Load) -> None:
    load.speeches = [replace(speech, text="") for speech in load.speeches]
    found = await heard(load)
    assert all(one.error.startswith("INVALID_ARGUMENT") for one in found[CLIENT])
    assert all(one.error.startswith("the gateway answered HTTP/1.1 400") and not one.cut for one in found[HTTP])
