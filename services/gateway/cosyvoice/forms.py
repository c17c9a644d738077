"""The fields of CosyVoice's forms, their ranges, and what the speech service gets of them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Form, UploadFile
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Prompt, PromptMode
from cosyserve.errors import InvalidRequest

_END_OF_PROMPT = "<|endofprompt|>"
"""Callers of the reference append it to an instruction; the speech service appends it itself."""


def ranged(least: float, most: float) -> tuple[Any, Any]:
    """A form field of a number with a range, and the check that names the whole range."""

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise PydanticCustomError("out_of_range", "allowed are {least} to {most}", {"least": least, "most": most})
        return value

    return Form(json_schema_extra={"minimum": least, "maximum": most}), AfterValidator(check)


_SPEED, _IN_SPEED = ranged(0.5, 2.0)
_CHARACTERS, _IN_CHARACTERS = ranged(10, 20_000)
_SEED, _IN_SEED = ranged(0, (1 << 64) - 1)


@dataclass(frozen=True)
class SpeechForm:
    """The fields of every form that speaks. A dependency of FastAPI."""

    tts_text: Annotated[str, Form()]
    """The text, plain or SSML."""
    format: Annotated[Literal["stream", "wav"], Form()] = "stream"
    """`stream`: samples without a header (signed 16-bit, 24 kHz, mono); `wav`: a whole file."""
    speed: Annotated[float, _SPEED, _IN_SPEED] = 1.0
    stream: Annotated[bool, Form()] = True
    """Whether samples are sent while later ones are still made; a file never is."""
    max_text_length: Annotated[int, _CHARACTERS, _IN_CHARACTERS] = 100
    """Characters of a sentence; a longer one is spoken in parts."""
    enable_smart_split: Annotated[bool, Form()] = True
    """Without it `max_text_length` does not apply."""
    seed: Annotated[int | None, _SEED, _IN_SEED] = None
    """Same form, same seed: the same samples."""

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            speed=self.speed,
            seed=self.seed,
            max_sentence_characters=self.max_text_length if self.enable_smart_split else 0,
        )


async def prompted(
    options: SynthesisOptions, mode: PromptMode, recording: UploadFile | None, transcript: str, speaker: str
) -> None:
    """Add the voice of a request to its options: an uploaded recording, for this request alone, or
    a speaker of the server. Raises InvalidRequest unless there is exactly one.
    """
    options["prompt_mode"] = mode
    if (recording is None) == (not speaker):
        raise InvalidRequest("prompt_wav is the recording to speak like; give it, or spk_id in its place, and not both")
    if recording is not None:
        options["prompt"] = Prompt(await recording.read(), transcript)


def instruction(text: str) -> str:
    """The instruction without the mark of its end. Raises InvalidRequest for an empty one."""
    spoken_as = text.strip().removesuffix(_END_OF_PROMPT).strip()
    if not spoken_as:
        raise InvalidRequest("instruct_text is empty, allowed are 1 to 500 characters")
    return spoken_as
