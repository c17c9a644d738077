"""Every row of the table of compatibility specification section 2.4, for every kind of voice."""

import pytest

from cosyserve.errors import FailedPrecondition
from cosyserve.v1 import synthesis_pb2
from services.orchestrator.speech.conditioning import Conditioning, PromptMode, Voice, condition

TEXT, SPEECH, MEL, VECTOR, INSTRUCTION = (1, 2), (3, 4, 5), bytes(3 * 2 * 80 * 4), b"vector", (6, 7, 8)
WHOLE = Voice("anna", "hash", TEXT, SPEECH, MEL, VECTOR)
UNTRANSCRIBED = Voice("anna", "hash", (), SPEECH, MEL, VECTOR)
VECTOR_ONLY = Voice("anna", "hash", (), (), b"", VECTOR)
LISTENS = {"speech_tokens": SPEECH, "mel": MEL, "key": "hash"}
DEAF = {"speech_tokens": (), "mel": b"", "key": ""}


def conditioning(text: tuple[int, ...], heard: tuple[int, ...], **decoder: object) -> Conditioning:
    return Conditioning(voice="anna", text_ids=text, llm_prompt_tokens=heard, speaker_embedding=VECTOR, **decoder)  # type: ignore[arg-type]


def test_of_a_cut_prompt_the_decoder_is_shown_the_end_and_the_language_model_all() -> None:
    cut = Voice("anna", "hash", TEXT, SPEECH, MEL[2 * 80 * 4 :], VECTOR)
    expected = {"speech_tokens": SPEECH[1:], "mel": cut.prompt_mel, "key": "hash"}
    assert condition(cut, PromptMode.ZERO_SHOT) == conditioning(TEXT, SPEECH, **expected)


def test_zero_shot_shows_everything() -> None:
    assert condition(WHOLE, PromptMode.ZERO_SHOT) == conditioning(TEXT, SPEECH, **LISTENS)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED])
def test_cross_lingual_shows_the_language_model_nothing(voice: Voice) -> None:
    assert condition(voice, PromptMode.CROSS_LINGUAL) == conditioning((), (), **LISTENS)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED])
def test_instruct_shows_the_language_model_the_instruction_and_no_speech(voice: Voice) -> None:
    assert condition(voice, PromptMode.INSTRUCT, INSTRUCTION) == conditioning(INSTRUCTION, (), **LISTENS)


def test_instruct_of_a_speaker_vector_alone_shows_the_decoder_no_speech() -> None:
    assert condition(VECTOR_ONLY, PromptMode.INSTRUCT, INSTRUCTION) == conditioning(INSTRUCTION, (), **DEAF)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED, VECTOR_ONLY])
def test_sft_shows_the_vector_alone(voice: Voice) -> None:
    assert condition(voice, PromptMode.SFT) == conditioning((), (), **DEAF)


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
    with pytest.raises(FailedPrecondition) as caught:
        condition(voice, mode)
    assert caught.value.message == text


def test_modes_are_those_of_the_protocol() -> None:
    told = {name.removeprefix("PROMPT_MODE_"): number for name, number in synthesis_pb2.PromptMode.items()}
    assert {mode.name: mode.value for mode in PromptMode} == {name: number for name, number in told.items() if number}
