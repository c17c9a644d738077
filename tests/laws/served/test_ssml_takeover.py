"""The frontend as a process of its own, killed while a document still arrives: its successor is
told the document from the start, and what was said, and what was warned of, is not told again."""

from pathlib import Path

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, TextWarning, WordTime
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.roster import Roster

HEAD = '<speak>This one ⊕ is complete. One <prosody rate="fast">word after'
REST = " another and on.</prosody> Then <b>a</b> last one.</speak>"


async def heard(
    stack: LocalDeployment, mode: Mode, *, killed: bool
) -> tuple[bytes, list[WordTime], list[TextWarning], int]:
    async with AsyncClient(stack.address) as client, client.streaming_synthesize(seed=5, mode=mode) as speech:
        for letter in HEAD:
            await speech.write(letter)
        audio = (await anext(speech)).audio
        if killed:
            # With nobody else about, the first replica that serves has the call.
            stack.kill("frontend", 0)
        for letter in REST:
            await speech.write(letter)
        await speech.finish()
        audio += await speech.read()
    assert speech.summary is not None
    assert list(speech.summary.warnings) == speech.warnings
    return audio, speech.words, speech.warnings, speech.summary.resumptions


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_a_killed_frontend_is_not_heard_in_a_document(mode: Mode) -> None:
    roster = Roster()
    async with local_deployment(Path("models/demo"), replicas={"frontend": 2}, environ={}, log=roster) as stack:
        audio, words, warnings, resumptions = await heard(stack, mode, killed=False)
        assert [warning.left_out for warning in warnings] == [("⊕",), ("b",)]
        assert (
            " ".join(word.text for word in words)
            == "This one is complete One word after another and on Then a last one"
        )
        assert resumptions == 0
        await roster.complete(frontend=2)
        assert await heard(stack, mode, killed=True) == (audio, words, warnings, 1)
