"""What a rolling upgrade does to a request that is under way, and its reversal: a process of one
release goes in mid-sentence and one of the other takes over. The caller hears the same samples.
"""

import contextlib

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.host.supervision.layout import free_ports
from tests.upgrade.conftest import Mix, Releases
from tests.upgrade.processes import STAGES, orchestrator, stage

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
DIRECTIONS = [("old", "new"), ("new", "old")]
FIRST_PART = "The keeper of the lighthouse climbed the narrow stairs, as he did every evening. He lit the "
SECOND_PART = "lamp. Then he sat down beside the window, and watched the boats come home."
STARTING_SECONDS = 240.0
"""That a client waits for a server on a busy machine."""


def whole(release: str) -> Mix:
    return release, release, release, release


async def begun(client: AsyncClient) -> tuple[StreamingSpeech, bytes]:
    """A request with its first sound, whose text goes on."""
    speech = client.streaming_synthesize(seed=5, resume_seconds=STARTING_SECONDS)
    await speech.write(FIRST_PART)
    return speech, (await anext(speech)).audio


async def ended(speech: StreamingSpeech) -> bytes:
    async with speech:
        await speech.write(SECOND_PART)
        await speech.finish()
        return await speech.read()


async def undisturbed(releases: Releases) -> bytes:
    async with releases.mixed(whole("new")) as address, AsyncClient(address) as client:
        speech, start = await begun(client)
        return start + await ended(speech)


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_all_of_a_release_is_replaced_in_mid_sentence(releases: Releases, first: str, second: str) -> None:
    """The client finds the other release at the same address, and goes on there."""
    wanted, (port,) = await undisturbed(releases), free_ports(1)
    async with contextlib.AsyncExitStack() as exits:
        async with releases.mixed(whole(first), port) as address:
            speech, start = await begun(await exits.enter_async_context(AsyncClient(address)))
        await exits.enter_async_context(releases.mixed(whole(second), port))
        assert start + await ended(speech) == wanted
        assert speech.resumed == 1


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_replica_of_the_other_release_takes_over(
    releases: Releases, name: str, first: str, second: str
) -> None:
    """The orchestrator is of the newer release, as the order of an upgrade has it only at the end;
    the stage has a replica of each, and the one that serves the request is killed.
    """
    wanted = await undisturbed(releases)
    reached = {each: releases.stages["new", each] for each in STAGES}
    async with contextlib.AsyncExitStack() as exits:
        victim = await exits.enter_async_context(contextlib.AsyncExitStack())
        killed = await victim.enter_async_context(stage(releases.trees[first], name, releases.voices))
        reached[name] = f"{killed},{releases.stages[second, name]}"
        address = await exits.enter_async_context(orchestrator(releases.trees["new"], reached))
        speech, start = await begun(await exits.enter_async_context(AsyncClient(address)))
        await victim.aclose()
        assert start + await ended(speech) == wanted
