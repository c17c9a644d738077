"""What each network is shown of a voice before it speaks: the modes of CosyVoice2 (compatibility
specification section 2.4).

| | zero_shot | cross_lingual | instruct | sft | |---|---|---|---|---| | speech-token model: text in
front of the text | transcript | - | instruction | - | | speech-token model: speech | prompt | - | -
| - | | decoder: speech tokens and mel (the prompt's last ones where it was cut) | prompt | prompt |
prompt | - | | decoder: speaker vector | voice's | voice's | voice's | voice's |
"""

import enum
from dataclasses import dataclass

from cosyserve import spec
from cosyserve.errors import FailedPrecondition


class PromptMode(enum.Enum):
    """Values are those of PromptMode in synthesis.proto."""

    ZERO_SHOT = 1
    CROSS_LINGUAL = 2
    INSTRUCT = 3
    SFT = 4


@dataclass(frozen=True)
class Recording:
    """Somebody speaking, as a request brings it; fields as in PromptRecording of voice.proto."""

    audio: bytes
    transcript: str = ""
    language_code: str = ""
    cut_prompt: bool = False


@dataclass(frozen=True)
class Prompting:
    """Whom a request wants to hear, and how. `recording` stands in place of `voice`; `mode` None:
    by instruction and voice. allowed: modes that this kind of request has."""

    voice: str = ""
    recording: Recording | None = None
    mode: PromptMode | None = None
    instruction: str = ""
    allowed: tuple[PromptMode, ...] = tuple(PromptMode)


@dataclass(frozen=True)
class Voice:
    """Everything a voice is, as voice.proto says."""

    id: str
    content_hash: str
    prompt_text_ids: tuple[int, ...]
    prompt_speech_tokens: tuple[int, ...]
    prompt_mel: bytes
    speaker_embedding: bytes

    @property
    def decoder_tokens(self) -> tuple[int, ...]:
        """The prompt's last tokens, those that prompt_mel is of."""
        count = len(self.prompt_mel) // (4 * spec.MEL_FRAMES_PER_TOKEN * spec.MEL_BINS)
        return self.prompt_speech_tokens[len(self.prompt_speech_tokens) - count :]

    @property
    def modes(self) -> tuple[PromptMode, ...]:
        """What it can be shown in, an instruction provided; the first one is how it is shown when
        nothing else is said.
        """
        if self.prompt_speech_tokens and self.prompt_text_ids:
            return tuple(PromptMode)
        if self.prompt_speech_tokens:
            return (PromptMode.CROSS_LINGUAL, PromptMode.INSTRUCT, PromptMode.SFT)
        return (PromptMode.SFT, PromptMode.INSTRUCT)


@dataclass(frozen=True)
class Conditioning:
    """One voice in one mode, the same for every sentence of a request and for every replica that
    speaks it.
    """

    voice: str
    """Id."""
    text_ids: tuple[int, ...]
    """What the speech-token model reads in front of the text."""
    llm_prompt_tokens: tuple[int, ...]
    """What the speech-token model takes for its own speech, only ever beside the words that are
    said in it: of speech without them it would take the words for its own and garble those it is to
    say."""
    speech_tokens: tuple[int, ...]
    """What the decoder is shown."""
    mel: bytes
    """Of speech_tokens: little-endian float32 [2 * speech_tokens, 80]."""
    speaker_embedding: bytes
    key: str
    """Under which a decoder may keep the state behind speech_tokens; empty: there is none worth
    keeping.
    """


def condition(
    voice: Voice,
    mode: PromptMode | None = None,
    instruction_ids: tuple[int, ...] = (),
    allowed: tuple[PromptMode, ...] = tuple(PromptMode),
) -> Conditioning:
    """`voice` in `mode`, which None leaves to instruction and voice. instruction_ids: of
    PromptMode.INSTRUCT. allowed: as in `Prompting`.

    Raises FailedPrecondition when the mode needs what the voice lacks.
    """
    chosen = mode or (PromptMode.INSTRUCT if instruction_ids else voice.modes[0])
    if chosen not in voice.modes:
        has = ", ".join(f"PROMPT_MODE_{able.name}" for able in voice.modes if able in allowed)
        lacks = "transcript" if voice.prompt_speech_tokens else "recording"
        raise FailedPrecondition(
            f"voice {voice.id!r} has no {lacks}, which PROMPT_MODE_{chosen.name} needs; it can be spoken in {has}"
        )
    decoder_listens = chosen is not PromptMode.SFT and bool(voice.prompt_speech_tokens)
    text = {PromptMode.ZERO_SHOT: voice.prompt_text_ids, PromptMode.INSTRUCT: instruction_ids}
    return Conditioning(
        voice=voice.id,
        text_ids=text.get(chosen, ()),
        llm_prompt_tokens=voice.prompt_speech_tokens if chosen is PromptMode.ZERO_SHOT else (),
        speech_tokens=voice.decoder_tokens if decoder_listens else (),
        mel=voice.prompt_mel if decoder_listens else b"",
        speaker_embedding=voice.speaker_embedding,
        key=voice.content_hash if decoder_listens else "",
    )
