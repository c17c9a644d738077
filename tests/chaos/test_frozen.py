"""A process that is stopped (SIGSTOP) holds its connections open and answers nothing. The
orchestrator notices it of a replica within eight seconds, and so does a client of the orchestrator,
which goes on where it can when the door answers again.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from cosyserve.client import AsyncClient
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.errors import Unavailable
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.roster import Roster
from tests.stacks.up_process import TINY

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOTICED_SECONDS = 8.0
_ANSWERED_SECONDS = 4.0
"""Of a request that meets no frozen replica, on a busy machine; one that does takes until the
replica is given up.
"""
FIRST_HALF, SECOND_HALF = (
    "The first half is said at once. The second half ",
    "comes when a process is frozen. And one sentence more.",
)
LONG = "This is one of many sentences that are all spoken. " * 150
"""Ten minutes of audio: more than waits in the buffers of a connection."""
STAGES = ("frontend", "llm", "token2wav")
CALLERS = range(3)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack_and_roster() -> AsyncIterator[tuple[LocalDeployment, Roster]]:
    """Fake engines, two replicas of each stage. A frozen process is left alone: it comes back as it
    was.
    """
    roster, replicas = Roster(), dict.fromkeys(STAGES, 2)
    async with local_deployment(TINY, replicas=replicas, backend="fake", restart_frozen=False, log=roster) as stack:
        yield stack, roster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[LocalDeployment]:
    """One replica of each stage."""
    async with local_deployment(TINY, backend="fake", restart_frozen=False) as running:
        yield running


@contextlib.contextmanager
def frozen(stack: LocalDeployment, name: str, replica: int = 0) -> Iterator[float]:
    """The process does not run while the block does; gives the time when it stopped."""
    stack.kill(name, replica, signal.SIGSTOP)
    try:
        yield seconds()
    finally:
        stack.kill(name, replica, signal.SIGCONT)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def half_written(client: AsyncClient, seed: int) -> StreamingSpeech:
    """A request that has begun to sound and whose text goes on: it is under way at every stage."""
    speech = client.streaming_synthesize(seed=seed)
    await speech.write(FIRST_HALF)
    return speech


async def rest_of(speech: StreamingSpeech) -> bytes:
    """Write the rest of the text and hear all of it."""
    async with speech:
        await speech.write(SECOND_HALF)
        await speech.finish()
        return await speech.read()


async def check_short(client: AsyncClient) -> None:
    """A short request goes to the first replicas that serve, and is not taken over."""
    begin = seconds()
    async with client.synthesize("Short.", seed=1) as speech:
        assert await speech.read()
    assert speech.summary.resumptions == 0
    assert seconds() - begin < _ANSWERED_SECONDS


@pytest.mark.parametrize("stage", [*(pytest.param(stage, marks=pytest.mark.chaos) for stage in STAGES[:2]), STAGES[2]])
async def test_a_frozen_stage_under_load(stack_and_roster: tuple[LocalDeployment, Roster], stage: str) -> None:
    stack, roster = stack_and_roster
    await roster.complete(**dict.fromkeys(STAGES, 2))
    async with AsyncClient(stack.address) as client:
        undisturbed = [await rest_of(await half_written(client, seed)) for seed in CALLERS]
        speeches = [await half_written(client, seed) for seed in CALLERS]
        with frozen(stack, stage) as begin:
            hearing = [asyncio.create_task(rest_of(speech)) for speech in speeches]
            await roster.lost(stage)
            assert seconds() - begin < NOTICED_SECONDS
            heard = await asyncio.gather(*hearing)
            assert seconds() - begin < NOTICED_SECONDS + _ANSWERED_SECONDS
        assert heard == undisturbed
        assert sum(speech.summary.resumptions for speech in speeches if speech.summary is not None) > 0
        await roster.returned(stage)


@pytest.mark.chaos
@pytest.mark.parametrize("stage", STAGES)
async def test_a_frozen_stage_without_load(stack_and_roster: tuple[LocalDeployment, Roster], stage: str) -> None:
    stack, roster = stack_and_roster
    await roster.complete(**dict.fromkeys(STAGES, 2))
    async with AsyncClient(stack.address) as client:
        with frozen(stack, stage) as begin:
            await roster.lost(stage)
            assert seconds() - begin < NOTICED_SECONDS
            for _ in range(4):
                await check_short(client)
        await roster.returned(stage)
        with frozen(stack, stage, 1):
            # Only the replica that had been frozen is left, and it is used as soon as the other one
            # is given up.
            await roster.lost(stage)
            await check_short(client)
        await roster.returned(stage)


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
    async with AsyncClient(stack.address) as client:
        await client.voices()
        speech = client.streaming_synthesize(seed=1, resume_seconds=0)
        await speech.write(FIRST_HALF)
        await anext(speech)
        with frozen(stack, "orchestrator") as begin:
            with pytest.raises(Unavailable):
                await (client.voices(timeout=30.0) if method == "voices" else speech.read())
            assert seconds() - begin < NOTICED_SECONDS


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
