"""How finely a recording that is converted is read: with frames of its spectrum closer together
than the speech tokenizer was made for, which then hears slower speech and gives more tokens.

25 tokens a second are few for a small model: a short sound has one or two. The decoder takes the
tempo back by its `speed`, so that the conversion is timed as the recording is.
"""

import math

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.features.whisper_mel import HOP

KEY = "conversion_frame_step"
SMALLEST_STEP = HOP // 2


def conversion_step(directory: ModelDirectory) -> int:
    """Samples at 16 kHz between two frames of a recording that is converted: the directory's yaml
    key `speech_tokenizer.conversion_frame_step`, an extension of ours, from 80 to 160; 160 where it
    is missing, as in published ones. Raises ModelError for an invalid value.
    """
    section = directory.config().get("speech_tokenizer", {})
    value = section.get(KEY, HOP) if isinstance(section, dict) else section
    if type(value) is not int or not SMALLEST_STEP <= value <= HOP:
        raise ModelError(
            f"{directory.path}: yaml key speech_tokenizer.{KEY} is {value!r}, must be a whole number from "
            f"{SMALLEST_STEP} to {HOP}"
        )
    return value


def step_within(step: int, most_rate: float) -> int:
    """The step nearest to `step`, from it to 160, with which there are at most `most_rate` times 25
    tokens a second; 160 where `most_rate` is no more than 1.
    """
    return HOP if not most_rate > 1.0 else max(step, math.ceil(HOP / most_rate))
