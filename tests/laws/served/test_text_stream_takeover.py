"""Stages as separate processes, killed while text still arrives: the client hears the complete,
identical audio in both modes, and no word and no warning twice. A frontend that takes over a
document gets it from its start.
"""

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, Summary, TextWarning, WordTime
from cosyserve.host.supervision.supervisor import LocalDeployment
from tests.stacks.roster import Roster

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = ("This one is complete. One word after another and ", "no end in sight until here. Then a last one.")
DOCUMENT = (
    '<speak>This one ⊕ is complete. One <prosody rate="fast">word after',
    " another and on.</prosody> Then <b>a</b> last one.</speak>",
)


async def speak(
    stack: LocalDeployment, text: tuple[str, str], mode: Mode, killed: tuple[str, int] | None = None
) -> tuple[bytes, list[WordTime], list[TextWarning], Summary]:
    """The sound, its words and warnings, and what it took. killed: the stage and the replica that
    dies between the two parts of the text, with sound already heard.
    """
    async with AsyncClient(stack.address) as client, client.streaming_synthesize(seed=5, mode=mode) as speech:
        for letter in text[0]:
            await speech.write(letter)
        heard = (await anext(speech)).audio
        if killed is not None:
            stack.kill(*killed)
        for letter in text[1]:
            await speech.write(letter)
        await speech.finish()
        heard += await speech.read()
    assert speech.summary is not None
    assert list(speech.summary.warnings) == speech.warnings
    return heard, speech.words, speech.warnings, speech.summary


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
@pytest.mark.parametrize(
    ("text", "spoken", "sentences", "left_out", "stages"),
    [
        (TEXT, "".join(TEXT).replace(".", ""), 3, [], ("frontend", "llm", "token2wav")),
        (
            DOCUMENT,
            "This one is complete One word after another and on Then a last one",
            4,
            [("⊕",), ("b",)],
            ("frontend",),
        ),
    ],
    ids=["text", "document"],
)
async def test_a_killed_process_is_not_heard(
    stack_and_roster: tuple[LocalDeployment, Roster],
    mode: Mode,
    text: tuple[str, str],
    spoken: str,
    sentences: int,
    left_out: list[tuple[str]],
    stages: tuple[str, ...],
) -> None:
    stack, roster = stack_and_roster
    *undisturbed, summary = await speak(stack, text, mode)
    _, words, warnings = undisturbed
    assert " ".join(word.text for word in words) == spoken
    assert [warning.left_out for warning in warnings] == left_out
    assert (summary.sentences, summary.resumptions) == (sentences, 0)
    await roster.complete(frontend=2, llm=2, token2wav=2)
    for stage in stages:
        for replica in (0, 1):
            *heard, summary = await speak(stack, text, mode, killed=(stage, replica))
            assert heard == undisturbed, stage
            await roster.returned(stage)
            if summary.resumptions:
                break
        # In sentence mode the speech-token model may have no work just then.
        assert summary.resumptions == 1 or (stage == "llm" and mode == "sentences" and summary.resumptions == 0)
