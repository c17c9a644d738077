"""Stages as separate processes, killed in mid-sentence: the client hears the complete, identical
audio.
"""

import asyncio

import pytest

from cosyserve.client import AsyncClient
from cosyserve.host.supervision.supervisor import LocalDeployment
from tests.stacks.roster import Roster

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = (
    "The old keeper of the lighthouse climbed the narrow stairs every evening, lit the great lamp, and wrote a few "
    "lines about wind and "
    "weather into his heavy book. Then he sat down beside the window to watch the fishing boats come home, counted "
    "their lanterns twice, "
    "and thought of the years when he had been out there with his brothers, pulling in the nets before the sun came up."
)
"""Long enough for the speech-token model to be at work still when the first sound is heard."""


@pytest.mark.parametrize("stage", ["token2wav", "llm"])
async def test_a_killed_process_is_not_heard(stack_and_roster: tuple[LocalDeployment, Roster], stage: str) -> None:
    stack, roster = stack_and_roster
    await roster.complete(frontend=2, token2wav=2, llm=2)
    async with AsyncClient(stack.address) as client:
        undisturbed = await client.synthesize(LONG, seed=5).read()
        speech = client.synthesize(LONG, seed=5)
        heard = b""
        async with speech:
            async for chunk in speech:
                if not heard:
                    # With no other caller, the first replica that serves has the call.
                    stack.kill(stage, 0)
                heard += chunk.audio
        assert heard == undisturbed
        assert speech.summary is not None
        assert speech.summary.resumptions == 1
        await roster.returned(stage)
        assert await client.synthesize(LONG, seed=5).read() == undisturbed


async def test_both_replicas_speak_alike(stack_and_roster: tuple[LocalDeployment, Roster]) -> None:
    """Requests at once are spread over the replicas; each hears what it would have heard alone."""
    stack, roster = stack_and_roster
    await roster.complete(frontend=2, token2wav=2, llm=2)
    async with AsyncClient(stack.address) as client:
        alone = [await client.synthesize("Who speaks here?", seed=seed).read() for seed in range(4)]
        together = await asyncio.gather(*(client.synthesize("Who speaks here?", seed=seed).read() for seed in range(4)))
    assert list(together) == alone
