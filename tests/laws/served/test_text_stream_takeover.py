"""Stages as separate processes, killed while text still arrives: the client hears the complete,
identical audio in both modes.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, Summary, WordTime
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.roster import Roster

pytestmark = pytest.mark.asyncio(loop_scope="module")
FIRST = "This one is complete. One word after another and "
REST = "no end in sight until here. Then a last one."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack_and_roster() -> AsyncIterator[tuple[LocalDeployment, Roster]]:
    roster = Roster()
    async with local_deployment(
        Path("models/demo"), replicas={"frontend": 2, "token2wav": 2, "llm": 2}, environ={}, log=roster
    ) as running:
        yield running, roster


async def speak(stack: LocalDeployment, mode: Mode, killed: str | None = None) -> tuple[bytes, list[WordTime], Summary]:
    """The sound, its words, and what it took. killed: the stage whose replica dies between two
    fragments, with sound already heard.
    """
    async with AsyncClient(stack.address) as client, client.streaming_synthesize(seed=5, mode=mode) as speech:
        for letter in FIRST:
            await speech.write(letter)
        heard = (await anext(speech)).audio
        if killed is not None:
            # With nobody else about, the first replica that serves has the call: the frontend that
            # reads the text is asked before the other one looks up the voice.
            stack.kill(killed, 0)
        for letter in REST:
            await speech.write(letter)
        await speech.finish()
        heard += await speech.read()
    assert speech.summary is not None
    return heard, speech.words, speech.summary


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_a_killed_process_is_not_heard(stack_and_roster: tuple[LocalDeployment, Roster], mode: Mode) -> None:
    stack, roster = stack_and_roster
    undisturbed, words, summary = await speak(stack, mode)
    assert [word.text for word in words] == (FIRST + REST).replace(".", "").split()
    assert (summary.sentences, summary.resumptions) == (3, 0)
    await roster.complete(frontend=2, llm=2, token2wav=2)
    for stage in ("frontend", "llm", "token2wav"):
        heard, told, summary = await speak(stack, mode, killed=stage)
        assert heard == undisturbed, stage
        assert told == words, stage
        # In sentence mode nobody may be at work in the speech-token model just then.
        assert summary.resumptions == 1 or (stage == "llm" and mode == "sentences" and summary.resumptions == 0)
        await roster.returned(stage)
