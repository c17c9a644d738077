"""Which parts of a voice condition each network: the modes (compatibility specifications of
CosyVoice2, section 2.4, and CosyVoice3, section 2.2).

| input                                  | zero_shot  | cross_lingual | instruct    | sft     |
|----------------------------------------|------------|---------------|-------------|---------|
| speech-token model: text before the    | transcript | -             | instruction | -       |
| text                                   |            |               |             |         |
| speech-token model: speech             | prompt     | -             | -           | -       |
| decoder: speech tokens and mel (of a   | prompt     | prompt        | prompt      | -       |
| cut prompt the last ones)              |            |               |             |         |
| decoder: speaker vector                | voice's    | voice's       | voice's     | voice's |

A model that needs a system part (CosyVoice3) gets it before the transcript and before the
instruction, which the frontend hands out with it, and alone where the table has no text.
"""

import enum
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from cosyserve import spec
from cosyserve.errors import FailedPrecondition, InvalidRequest


class PromptMode(enum.Enum):
    """Values are those of PromptMode in synthesis.proto."""

    ZERO_SHOT = 1
    CROSS_LINGUAL = 2
    INSTRUCT = 3
    SFT = 4


@dataclass(frozen=True)
class Recording:
    """The recording of a request; fields as in PromptRecording of voice.proto."""

    audio: bytes
    transcript: str = ""
    language_code: str = ""
    cut_prompt: bool = False

    @cached_property
    def digest(self) -> str:
        """sha256 of `audio`. Made once: it is asked for with each sentence, and of 10 MiB it takes
        some milliseconds.
        """
        return hashlib.sha256(self.audio).hexdigest()


@dataclass(frozen=True)
class Prompting:
    """Voice and manner of speaking that a request asks for."""

    voice: str = ""
    """Id of the voice; empty: the default voice, or `recording`."""
    recording: Recording | None = None
    """Used instead of `voice`."""
    mode: PromptMode | None = None
    """None: chosen by instruction and voice."""
    instruction: str = ""
    allowed: tuple[PromptMode, ...] = tuple(PromptMode)
    """The modes that this kind of request supports."""
    by_token: bool = False
    """Whether its text is spoken while it is being written."""


@dataclass(frozen=True)
class Voice:
    """All data of a voice, as in voice.proto."""

    id: str
    content_hash: str
    prompt_text_ids: tuple[int, ...]
    prompt_speech_tokens: tuple[int, ...]
    prompt_mel: bytes
    speaker_embedding: bytes
    system_text_ids: tuple[int, ...] = ()
    """What the model needs before a text that has neither transcript nor instruction before it;
    empty for a model that needs nothing there.
    """

    @property
    def decoder_tokens(self) -> tuple[int, ...]:
        """The last tokens of the prompt, which prompt_mel covers."""
        count = len(self.prompt_mel) // (4 * spec.MEL_FRAMES_PER_TOKEN * spec.MEL_BINS)
        return self.prompt_speech_tokens[len(self.prompt_speech_tokens) - count :]

    @property
    def modes(self) -> tuple[PromptMode, ...]:
        """The modes that the voice supports, an instruction provided; the first one is the
        default.
        """
        if self.prompt_speech_tokens and self.prompt_text_ids:
            return tuple(PromptMode)
        if self.prompt_speech_tokens:
            return (PromptMode.CROSS_LINGUAL, PromptMode.INSTRUCT, PromptMode.SFT)
        return (PromptMode.SFT, PromptMode.INSTRUCT)


@dataclass(frozen=True)
class Conditioning:
    """One voice in one mode: the same for every sentence of a request and every replica that speaks
    it.
    """

    voice: str
    """Id of the voice."""
    text_ids: tuple[int, ...]
    """Text ids before the text, for the speech-token model."""
    llm_prompt_tokens: tuple[int, ...]
    """Speech tokens that the speech-token model continues. Only ever given together with their
    transcript: without it the model would take the text for the words of the prompt and garble it.
    """
    speech_tokens: tuple[int, ...]
    """Speech tokens of the prompt, for the decoder."""
    mel: bytes
    """Of speech_tokens: little-endian float32 [2 * speech_tokens, 80]."""
    speaker_embedding: bytes
    key: str
    """Cache key of the decoder state after speech_tokens; empty: there is nothing worth caching."""


def condition(
    voice: Voice,
    mode: PromptMode | None = None,
    instruction_ids: tuple[int, ...] = (),
    allowed: tuple[PromptMode, ...] = tuple(PromptMode),
    *,
    by_token: bool = False,
) -> Conditioning:
    """The conditioning of `voice` in `mode`; None chooses by instruction and voice.
    instruction_ids: of PromptMode.INSTRUCT. allowed, by_token: as in `Prompting`.

    Raises FailedPrecondition if the voice lacks what the mode needs, and InvalidRequest as
    `refuse_spoken_instruction`.
    """
    if by_token and instruction_ids and not voice.system_text_ids:
        refuse_spoken_instruction()
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
        # A transcript and an instruction bring the system part along.
        text_ids=text.get(chosen, voice.system_text_ids),
        llm_prompt_tokens=voice.prompt_speech_tokens if chosen is PromptMode.ZERO_SHOT else (),
        speech_tokens=voice.decoder_tokens if decoder_listens else (),
        mel=voice.prompt_mel if decoder_listens else b"",
        speaker_embedding=voice.speaker_embedding,
        key=voice.content_hash if decoder_listens else "",
    )


def refuse_spoken_instruction() -> NoReturn:
    """Raise InvalidRequest for an instruction before text that is spoken while it is being written:
    only a model with a system part keeps them apart.
    """
    raise InvalidRequest(
        "setup.request.instruction is set; in MODE_TOKENS this model would speak it as part of the text, "
        "MODE_SENTENCES takes one"
    )
