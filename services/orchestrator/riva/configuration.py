"""The custom configuration of a request: options of our own contract beyond Riva's fields."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from cosyserve.errors import InvalidRequest
from cosyserve.v1 import synthesis_pb2 as pb

Setup = pb.StreamingSynthesizeSetup
_ONSETS = {"trimmed": pb.ONSET_TRIMMED, "natural": pb.ONSET_NATURAL}
_MODES = {"sentences": Setup.MODE_SENTENCES, "tokens": Setup.MODE_TOKENS}
_SWITCH = {"true": True, "false": False}
Read = Callable[[str, str], Any]


def _whole(least: int, most: int) -> Read:
    def read(key: str, value: str) -> int:
        if not (value.isascii() and value.isdecimal() and least <= int(value[:20]) <= most and len(value) <= 20):
            raise _wrong(key, value, f"a whole number from {least} to {most}")
        return int(value)

    return read


def _factor(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0.5 <= number <= 2.0:
        raise _wrong(key, value, "0.5 to 2.0")
    return number


def _one_of(values: Mapping[str, Any]) -> Read:
    def read(key: str, value: str) -> Any:
        if value.lower() not in values:
            raise _wrong(key, value, " or ".join(values))
        return values[value.lower()]

    return read


def _text(key: str, value: str) -> str:
    return value


_OF_A_REQUEST: dict[str, Read] = {
    "seed": _whole(0, (1 << 64) - 1),
    "speed": _factor,
    "instruction": _text,
    "onset": _one_of(_ONSETS),
    "retry": _one_of(_SWITCH),
    "sentence_pause_milliseconds": _whole(0, 10_000),
    "max_sentence_characters": _whole(10, 20_000),
}
"""Fields of SynthesizeRequest."""
_OF_A_STREAM: dict[str, Read] = {
    "mode": _one_of(_MODES),
    "buffer_delay_milliseconds": _whole(50, 10_000),
    "idle_timeout_milliseconds": _whole(1_000, 180_000),
}
"""Fields of StreamingSynthesizeSetup."""


def configure(configuration: Mapping[str, str], setup: Setup) -> list[str]:
    """Set the options in `setup` and in its request; returns a warning for those that do not exist.
    Raises InvalidRequest for a value that an option cannot have.
    """
    unknown = []
    for key, value in sorted(configuration.items()):
        if key in _OF_A_REQUEST:
            setattr(setup.request, key, _OF_A_REQUEST[key](key, value.strip()))
        elif key in _OF_A_STREAM:
            setattr(setup, key, _OF_A_STREAM[key](key, value.strip()))
        else:
            unknown.append(key)
    if not unknown:
        return []
    known = ", ".join((*_OF_A_REQUEST, *_OF_A_STREAM))
    return [f"custom_configuration: {len(unknown)} unknown and without effect; known are {known}"]


def _wrong(key: str, value: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(f"custom_configuration[{key!r}] is {value!r}, allowed: {allowed}")
