"""How finely a recording that is converted is read: with frames of its spectrum closer together
than the speech tokenizer was made for, which then hears slower speech and gives more tokens.

25 tokens a second are few for a small model: a short sound has one or two. The decoder takes the
tempo back by its `speed`, so that the conversion is timed as the recording is.
"""

import json
import math
from pathlib import Path
from typing import Any

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.features.whisper_mel import HOP

FILE = "speech_tokenizer.json"
"""An extension of ours, which only the frontend reads: the yaml is part of what names the other
engines, and they do not depend on it.
"""
KEY = "conversion_frame_step"
SMALLEST_STEP = HOP // 2
_MOST_BYTES = 4096


def conversion_step(directory: ModelDirectory) -> int:
    """Samples at 16 kHz between two frames of a recording that is converted: the value
    `conversion_frame_step` of the directory's `speech_tokenizer.json`, from 80 to 160; 160 where
    the file, its content or the key is missing, as in published directories. Raises ModelError for
    an invalid file or value.
    """
    path = directory.path / FILE
    if not path.exists():
        return HOP
    value = _mapping(path).get(KEY)
    if value is None:
        return HOP
    if type(value) is not int or not SMALLEST_STEP <= value <= HOP:
        raise ModelError(f"{path}: {KEY} is {value!r:.40}, must be a whole number from {SMALLEST_STEP} to {HOP}")
    return value


def _mapping(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ModelError(f"{path}: larger than {_MOST_BYTES} bytes")
        given = json.loads(data) if data.strip() else None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not a readable JSON file: {error}") from error
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ModelError(f"{path}: expected a mapping, of which {KEY} is read")
    if unknown := set(given) - {KEY}:
        raise ModelError(f"{path}: unknown key {min(unknown)!r:.40}; {KEY} is read")
    return given


def step_within(step: int, most_rate: float) -> int:
    """The step nearest to `step`, from it to 160, with which there are at most `most_rate` times 25
    tokens a second; 160 where `most_rate` is no more than 1.
    """
    return HOP if not most_rate > 1.0 else max(step, math.ceil(HOP / most_rate))
