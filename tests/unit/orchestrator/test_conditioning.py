"""Every row of the table of compatibility specification section 2.4, for every kind of voice."""

import re
from dataclasses import replace

import pytest

from cosyserve.errors import FailedPrecondition, InvalidRequest
from cosyserve.v1 import synthesis_pb2
from services.orchestrator.speech.conditioning import Conditioning, PromptMode, Voice, condition

TEXT, SPEECH, MEL, VECTOR, INSTRUCTION = (1, 2), (3, 4, 5), bytes(3 * 2 * 80 * 4), b"vector", (6, 7, 8)
WHOLE = Voice("anna", "hash", TEXT, SPEECH, MEL, VECTOR)
UNTRANSCRIBED = Voice("anna", "hash", (), SPEECH, MEL, VECTOR)
CUT = Voice("anna", "hash", TEXT, SPEECH, MEL[2 * 80 * 4 :], VECTOR)
VECTOR_ONLY = Voice("anna", "hash", (), (), b"", VECTOR)
LISTENS: dict[str, object] = {"speech_tokens": SPEECH, "mel": MEL, "key": "hash"}
DEAF: dict[str, object] = {"speech_tokens": (), "mel": b"", "key": ""}


@pytest.mark.parametrize(
    ("voice", "mode", "text", "heard", "decoder"),
    [
        (WHOLE, PromptMode.ZERO_SHOT, TEXT, SPEECH, LISTENS),
        # Of a cut prompt the decoder gets the end, and the language model all of it.
        (CUT, PromptMode.ZERO_SHOT, TEXT, SPEECH, {**LISTENS, "speech_tokens": SPEECH[1:], "mel": CUT.prompt_mel}),
        (WHOLE, PromptMode.CROSS_LINGUAL, (), (), LISTENS),
        (UNTRANSCRIBED, PromptMode.CROSS_LINGUAL, (), (), LISTENS),
        (WHOLE, PromptMode.INSTRUCT, INSTRUCTION, (), LISTENS),
        (UNTRANSCRIBED, PromptMode.INSTRUCT, INSTRUCTION, (), LISTENS),
        (VECTOR_ONLY, PromptMode.INSTRUCT, INSTRUCTION, (), DEAF),
        (WHOLE, PromptMode.SFT, (), (), DEAF),
        (UNTRANSCRIBED, PromptMode.SFT, (), (), DEAF),
        (VECTOR_ONLY, PromptMode.SFT, (), (), DEAF),
    ],
)
def test_each_network_gets_what_the_mode_gives_it(
    voice: Voice, mode: PromptMode, text: tuple[int, ...], heard: tuple[int, ...], decoder: dict[str, object]
) -> None:
    assert condition(voice, mode, INSTRUCTION if mode is PromptMode.INSTRUCT else ()) == Conditioning(
        voice="anna", text_ids=text, llm_prompt_tokens=heard, speaker_embedding=VECTOR, **decoder
    )


@pytest.mark.parametrize(
    ("voice", "mode", "text"),
    [
        (WHOLE, PromptMode.ZERO_SHOT, TEXT),
        (WHOLE, PromptMode.CROSS_LINGUAL, (9, 8)),
        (WHOLE, PromptMode.INSTRUCT, INSTRUCTION),
        (WHOLE, PromptMode.SFT, (9, 8)),
        (VECTOR_ONLY, PromptMode.SFT, (9, 8)),
    ],
)
def test_a_system_part_is_there_in_every_mode(voice: Voice, mode: PromptMode, text: tuple[int, ...]) -> None:
    """A transcript and an instruction have it already."""
    needing = replace(voice, system_text_ids=(9, 8))
    ids = INSTRUCTION if mode is PromptMode.INSTRUCT else ()
    assert condition(needing, mode, ids).text_ids == text
    assert replace(condition(needing, mode, ids), text_ids=()) == replace(condition(voice, mode, ids), text_ids=())


def test_an_instruction_before_text_that_is_being_written() -> None:
    with pytest.raises(InvalidRequest, match=r"setup\.request\.instruction is set; in MODE_TOKENS this model would"):
        condition(WHOLE, None, INSTRUCTION, by_token=True)
    needing = replace(WHOLE, system_text_ids=(9, 8))
    assert condition(needing, None, INSTRUCTION, by_token=True) == condition(needing, None, INSTRUCTION)
    assert condition(WHOLE, by_token=True) == condition(WHOLE)


def test_not_chosen_is_by_instruction_and_voice() -> None:
    assert condition(WHOLE) == condition(WHOLE, PromptMode.ZERO_SHOT)
    assert condition(UNTRANSCRIBED) == condition(UNTRANSCRIBED, PromptMode.CROSS_LINGUAL)
    assert condition(VECTOR_ONLY) == condition(VECTOR_ONLY, PromptMode.SFT)
    for voice in (WHOLE, UNTRANSCRIBED, VECTOR_ONLY):
        assert condition(voice, None, INSTRUCTION) == condition(voice, PromptMode.INSTRUCT, INSTRUCTION)


@pytest.mark.parametrize(
    ("voice", "mode", "text"),
    [
        (
            UNTRANSCRIBED,
            PromptMode.ZERO_SHOT,
            "voice 'anna' has no transcript, which PROMPT_MODE_ZERO_SHOT needs; it can be spoken in "
            "PROMPT_MODE_CROSS_LINGUAL, PROMPT_MODE_INSTRUCT, PROMPT_MODE_SFT",
        ),
        (
            VECTOR_ONLY,
            PromptMode.ZERO_SHOT,
            "voice 'anna' has no recording, which PROMPT_MODE_ZERO_SHOT needs; it can be spoken in PROMPT_MODE_SFT, "
            "PROMPT_MODE_INSTRUCT",
        ),
        (
            VECTOR_ONLY,
            PromptMode.CROSS_LINGUAL,
            "voice 'anna' has no recording, which PROMPT_MODE_CROSS_LINGUAL needs; "
            "it can be spoken in PROMPT_MODE_SFT, PROMPT_MODE_INSTRUCT",
        ),
    ],
)
def test_a_mode_that_needs_what_the_voice_lacks_is_refused(voice: Voice, mode: PromptMode, text: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"^{re.escape(text)}$"):
        condition(voice, mode)


def test_modes_are_those_of_the_protocol() -> None:
    told = {name.removeprefix("PROMPT_MODE_"): number for name, number in synthesis_pb2.PromptMode.items()}
    assert {mode.name: mode.value for mode in PromptMode} == {name: number for name, number in told.items() if number}
