"""Every row of the table of compatibility specification section 2.4, for every kind of voice."""

import pytest

from cosyserve.errors import FailedPrecondition
from cosyserve.v1 import synthesis_pb2
from services.orchestrator.speech.conditioning import PromptMode, Shown, Voice, show

TEXT, SPEECH, MEL, VECTOR, INSTRUCTION = (1, 2), (3, 4, 5), bytes(3 * 2 * 80 * 4), b"vector", (6, 7, 8)
WHOLE = Voice("anna", "hash", TEXT, SPEECH, MEL, VECTOR)
UNTRANSCRIBED = Voice("anna", "hash", (), SPEECH, MEL, VECTOR)
VECTOR_ONLY = Voice("anna", "hash", (), (), b"", VECTOR)
LISTENS = {"speech_tokens": SPEECH, "mel": MEL, "key": "hash"}
DEAF = {"speech_tokens": (), "mel": b"", "key": ""}


def shown(text: tuple[int, ...], heard: tuple[int, ...], **decoder: object) -> Shown:
    return Shown(voice="anna", text_ids=text, heard_tokens=heard, speaker_embedding=VECTOR, **decoder)  # type: ignore[arg-type]


def test_of_a_cut_prompt_the_decoder_is_shown_the_end_and_the_language_model_all() -> None:
    cut = Voice("anna", "hash", TEXT, SPEECH, MEL[2 * 80 * 4 :], VECTOR)
    expected = {"speech_tokens": SPEECH[1:], "mel": cut.prompt_mel, "key": "hash"}
    assert show(cut, PromptMode.ZERO_SHOT) == shown(TEXT, SPEECH, **expected)


def test_zero_shot_shows_everything() -> None:
    assert show(WHOLE, PromptMode.ZERO_SHOT) == shown(TEXT, SPEECH, **LISTENS)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED])
def test_cross_lingual_shows_the_language_model_nothing(voice: Voice) -> None:
    assert show(voice, PromptMode.CROSS_LINGUAL) == shown((), (), **LISTENS)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED])
def test_instruct_shows_the_language_model_the_instruction_and_no_speech(voice: Voice) -> None:
    assert show(voice, PromptMode.INSTRUCT, INSTRUCTION) == shown(INSTRUCTION, (), **LISTENS)


def test_instruct_of_a_speaker_vector_alone_shows_the_decoder_no_speech() -> None:
    assert show(VECTOR_ONLY, PromptMode.INSTRUCT, INSTRUCTION) == shown(INSTRUCTION, (), **DEAF)


@pytest.mark.parametrize("voice", [WHOLE, UNTRANSCRIBED, VECTOR_ONLY])
def test_sft_shows_the_vector_alone(voice: Voice) -> None:
    assert show(voice, PromptMode.SFT) == shown((), (), **DEAF)


def test_not_chosen_is_by_instruction_and_voice() -> None:
    assert show(WHOLE) == show(WHOLE, PromptMode.ZERO_SHOT)
    assert show(UNTRANSCRIBED) == show(UNTRANSCRIBED, PromptMode.CROSS_LINGUAL)
    assert show(VECTOR_ONLY) == show(VECTOR_ONLY, PromptMode.SFT)
    for voice in (WHOLE, UNTRANSCRIBED, VECTOR_ONLY):
        assert show(voice, None, INSTRUCTION) == show(voice, PromptMode.INSTRUCT, INSTRUCTION)


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
        show(voice, mode)
    assert caught.value.message == text


def test_modes_are_those_of_the_protocol() -> None:
    told = {name.removeprefix("PROMPT_MODE_"): number for name, number in synthesis_pb2.PromptMode.items()}
    assert {mode.name: mode.value for mode in PromptMode} == {name: number for name, number in told.items() if number}
