"""Validation of requests, before any other work. Messages name the field, its value and the allowed
range.
"""

from collections.abc import Sequence

from cosyserve.errors import InvalidRequest
from services.llm.generation.config import LengthBounds

MOST_ARRIVING_IDS = 2048
"""Most text ids of a stream, and of a prompt."""
MOST_PROMPT_SPEECH = 1500
"""Most speech tokens of a prompt."""
MOST_IN_MESSAGE = 400
"""Most speech tokens of a response message."""
DEFAULT_IN_MESSAGE = 25
"""Speech tokens of a response message where the request does not set a number."""


def ids(field: str, values: Sequence[int], below: int, *, least: int = 0, most: int) -> tuple[int, ...]:
    """`least` to `most` ids, each 0 to below - 1. Raises InvalidRequest naming the first invalid
    id.
    """
    if not least <= len(values) <= most:
        raise InvalidRequest(f"{field} has {len(values)} ids, allowed are {least} to {most}")
    for index, value in enumerate(values):
        if not 0 <= value < below:
            raise InvalidRequest(f"{field}[{index}] is {value}, allowed 0 to {below - 1}")
    return tuple(values)


def message_size(field: str, value: int) -> int:
    """Tokens per message: 1 to 400, 0 for the default. Raises InvalidRequest."""
    if not 0 <= value <= MOST_IN_MESSAGE:
        raise InvalidRequest(f"{field} is {value}, allowed 1 to {MOST_IN_MESSAGE}, or 0 for {DEFAULT_IN_MESSAGE}")
    return value or DEFAULT_IN_MESSAGE


def replay_fits(replayed: int, text_ids: int, lengths: LengthBounds) -> None:
    """Raises InvalidRequest when more tokens are replayed than a sentence of this text can have."""
    most = lengths.longest(text_ids)
    if replayed > most:
        raise InvalidRequest(
            f"setup.replay_tokens has {replayed} ids, a sentence of {text_ids} text ids has at most {most}"
        )
