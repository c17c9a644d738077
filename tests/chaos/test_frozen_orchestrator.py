"""The client notices that the public door is frozen within eight seconds, and goes on where it can
when the door answers again.
"""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cosyserve.client import AsyncClient
from cosyserve.errors import Unavailable
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.chaos.frozen import FIRST_HALF, NOTICED_SECONDS, TINY

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = "This is one of many sentences that are all spoken. " * 150
"""Ten minutes of audio: more than waits in the buffers of a connection."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[LocalDeployment]:
    async with local_deployment(TINY, backend="fake", restart_frozen=False) as running:
        yield running


async def test_a_stream_is_resumed_when_the_door_answers_again(stack: LocalDeployment) -> None:
    async with AsyncClient(stack.address) as client:
        undisturbed = await client.synthesize(LONG, seed=3).read()
        async with client.synthesize(LONG, seed=3, resumptions=1) as speech:
            heard = (await anext(speech)).audio
            stack.kill("orchestrator", number=signal.SIGSTOP)
            # A client that notices later would simply go on hearing the same call.
            asyncio.get_running_loop().call_later(NOTICED_SECONDS, stack.kill, "orchestrator", 0, signal.SIGCONT)
            heard += await speech.read()
    assert speech.resumed == 1
    assert heard == undisturbed


@pytest.mark.chaos
@pytest.mark.parametrize("method", ["voices", "streaming"])
async def test_what_is_not_to_be_resumed_fails_in_time(stack: LocalDeployment, method: str) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncClient(stack.address) as client:
        await client.voices()
        speech = client.streaming_synthesize(seed=1, resume_seconds=0)
        await speech.write(FIRST_HALF)
        await anext(speech)
        stack.kill("orchestrator", number=signal.SIGSTOP)
        begin = loop.time()
        try:
            with pytest.raises(Unavailable):
                await (client.voices(timeout=30.0) if method == "voices" else speech.read())
            assert loop.time() - begin < NOTICED_SECONDS
        finally:
            stack.kill("orchestrator", number=signal.SIGCONT)


@pytest.mark.chaos
async def test_a_frozen_door_is_replaced_and_the_stream_goes_on() -> None:
    reports: list[str] = []
    async with (
        local_deployment(TINY, backend="fake", report=reports.append) as stack,
        AsyncClient(stack.address) as client,
    ):
        undisturbed = await client.synthesize(LONG, seed=3).read()
        [frozen] = [child.pid for child in stack.children if child.name == "orchestrator"]
        async with client.synthesize(LONG, seed=3) as speech:
            heard = (await anext(speech)).audio
            stack.kill("orchestrator", number=signal.SIGSTOP)
            heard += await asyncio.wait_for(speech.read(), 60)
        assert [child.pid for child in stack.children if child.name == "orchestrator"] != [frozen]
    assert "orchestrator.0 gave no health answer for 8 s and is killed" in reports
    assert speech.resumed >= 1
    assert heard == undisturbed
