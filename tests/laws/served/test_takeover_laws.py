"""Stages as separate processes, killed in mid-sentence and while text still arrives: the client
hears the complete, identical audio, and no word and no warning twice. A frontend that takes over a
document gets it from its start.
"""

import asyncio

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.types import Mode, Summary, TextWarning, WordTime
from cosyserve.generations.model_pair import pair_variables
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.calls import heard
from tests.stacks.roster import Roster
from tests.stacks.up_process import STEP_AUDIO2, TINY, TINY3

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
    await killed_and_not_heard(stack, roster, stage)


async def test_a_killed_process_of_the_fakes_is_not_heard() -> None:
    """The same around engines that only take time."""
    roster, pace = Roster(), {"COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "5"}
    async with local_deployment(TINY, replicas={"token2wav": 2}, backend="fake", environ=pace, log=roster) as stack:
        await roster.complete(token2wav=2)
        await killed_and_not_heard(stack, roster, "token2wav", LONG[:75])


async def test_a_killed_process_of_cosyvoice3_is_not_heard() -> None:
    """Its random weights end no sentence before its limit, which the guards would refuse."""
    roster, replicas = Roster(), {"token2wav": 2, "llm": 2}
    unguarded = {"COSYSERVE_ORCHESTRATOR_GUARDS": "false"}
    async with local_deployment(TINY3, replicas=replicas, environ=unguarded, log=roster) as stack:
        for stage in replicas:
            await roster.complete(token2wav=2, llm=2)
            await killed_and_not_heard(stack, roster, stage, "A few words more than one block.")


async def test_a_killed_process_of_step_audio2_is_not_heard() -> None:
    """The decoder of another directory behind the tokens of CosyVoice2."""
    roster = Roster()
    environ = {"COSYSERVE_ORCHESTRATOR_GUARDS": "false", **pair_variables(TINY, STEP_AUDIO2)}
    async with local_deployment(TINY, replicas={"token2wav": 2}, environ=environ, log=roster) as stack:
        await roster.complete(token2wav=2)
        await killed_and_not_heard(stack, roster, "token2wav", "A few words more than one block.")


async def killed_and_not_heard(stack: LocalDeployment, roster: Roster, stage: str, text: str = LONG) -> None:
    async with AsyncClient(stack.address) as client:
        undisturbed = await client.synthesize(text, seed=5).read()
        speech = client.synthesize(text, seed=5)
        async with speech:
            begun = (await anext(speech)).audio
            # With no other caller, the first replica that serves has the call.
            stack.kill(stage, 0)
            rest, _, summary = await heard(speech)
        assert (begun + rest, summary.resumptions) == (undisturbed, 1)
        await roster.returned(stage)
        assert await client.synthesize(text, seed=5).read() == undisturbed


async def test_both_replicas_speak_alike(stack_and_roster: tuple[LocalDeployment, Roster]) -> None:
    """Requests at once are spread over the replicas; each hears what it would have heard alone."""
    stack, roster = stack_and_roster
    await roster.complete(frontend=2, token2wav=2, llm=2)
    async with AsyncClient(stack.address) as client:
        alone = [await client.synthesize("Who speaks here?", seed=seed).read() for seed in range(4)]
        together = await asyncio.gather(*(client.synthesize("Who speaks here?", seed=seed).read() for seed in range(4)))
    assert list(together) == alone


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
        begun = (await anext(speech)).audio
        if killed is not None:
            stack.kill(*killed)
        for letter in text[1]:
            await speech.write(letter)
        await speech.finish()
        rest, _, summary = await heard(speech)
    assert list(summary.warnings) == speech.warnings
    return begun + rest, speech.words, speech.warnings, summary


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
async def test_a_process_killed_while_text_arrives_is_not_heard(
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
            *found, summary = await speak(stack, text, mode, killed=(stage, replica))
            assert found == undisturbed, stage
            await roster.returned(stage)
            if summary.resumptions:
                break
        # In sentence mode the speech-token model may have no work just then.
        assert summary.resumptions == 1 or (stage == "llm" and mode == "sentences" and summary.resumptions == 0)
