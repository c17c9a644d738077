"""What a test with a frozen process needs: the stack, its roster, and requests that are under way
when it freezes.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.roster import Roster

NOTICED_SECONDS = 8.0
TINY = Path("tests/golden/tiny")
FIRST_HALF, SECOND_HALF = (
    "The first half is said at once. The second half ",
    "comes when a process is frozen. And one sentence more.",
)
_STAGES = ("frontend", "llm", "token2wav")


@dataclass
class Watched:
    """A stack with two replicas of each stage, and what its orchestrator knows of them."""

    stack: LocalDeployment
    roster: Roster

    async def complete(self) -> None:
        """Return when the orchestrator knows all replicas to serve."""
        await self.roster.complete(**dict.fromkeys(_STAGES, 2))

    @contextlib.asynccontextmanager
    async def frozen(self, name: str, replica: int = 0) -> AsyncIterator[None]:
        """The process does not run while the block does."""
        self.stack.kill(name, replica, signal.SIGSTOP)
        try:
            yield
        finally:
            self.stack.kill(name, replica, signal.SIGCONT)


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    """Fake engines; all replicas are known when the block begins. A frozen process is left alone:
    it comes back as it was.
    """
    roster = Roster()
    async with local_deployment(
        TINY, replicas=dict.fromkeys(_STAGES, 2), backend="fake", restart_frozen=False, log=roster
    ) as stack:
        stack_and_roster = Watched(stack, roster)
        await stack_and_roster.complete()
        yield stack_and_roster


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


async def undisturbed(client: AsyncClient, seeds: range) -> list[bytes]:
    """What `half_written` and `rest_of` give when every process runs."""
    return [await rest_of(await half_written(client, seed)) for seed in seeds]


async def short(client: AsyncClient) -> float:
    """Seconds that a short request takes; it goes to the first replicas that serve. Raises when it
    does not complete or was taken over.
    """
    begin = asyncio.get_running_loop().time()
    async with client.synthesize("Short.", seed=1) as speech:
        assert await speech.read()
    assert speech.summary is not None
    assert speech.summary.resumptions == 0
    return asyncio.get_running_loop().time() - begin
