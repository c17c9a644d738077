"""Events of Wyoming as bytes: a line of JSON with `type`, `data`, `data_length` and
`payload_length`, then as many bytes of JSON and of payload as it says
(https://github.com/OHF-Voice/wyoming).

Written here instead of taken from the package `wyoming`, whose reader bounds neither the data nor
the payload, and takes what is malformed for the end of the connection.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from cosyserve.errors import InvalidRequest
from services.gateway.speech.json_nesting import require_flat

MOST_LINE_BYTES = MOST_DATA_BYTES = 1 << 18
"""Room for the longest text, each character escaped; older clients put the data in the line."""
MOST_PAYLOAD_BYTES = 1 << 20
"""No event that is served has a payload: it is read and dropped."""
_PIECE_BYTES = 1 << 16
_LONGEST_TYPE = 64


@dataclass(frozen=True)
class Event:
    """data: a JSON object. payload: of audio-chunk, s16le."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """As it travels."""
        head: dict[str, Any] = {"type": self.type}
        data = json.dumps(self.data, ensure_ascii=False).encode() if self.data else b""
        if data:
            head["data_length"] = len(data)
        if self.payload:
            head["payload_length"] = len(self.payload)
        return json.dumps(head).encode() + b"\n" + data + self.payload


async def read_event(reader: asyncio.StreamReader, seconds: float) -> Event | None:
    """The next event without its payload; None when the caller has hung up. Waits for its first
    byte without a limit, for the rest for `seconds`. reader: with a limit of MOST_LINE_BYTES.

    Raises InvalidRequest for what is no event, too long or too slow.
    """
    first = await reader.read(1)
    if not first:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await _rest(first, reader)
    except TimeoutError as error:
        raise InvalidRequest(f"an event did not arrive within {seconds:g} s") from error
    except asyncio.IncompleteReadError:
        return None


async def _rest(first: bytes, reader: asyncio.StreamReader) -> Event:
    try:
        line = first if first == b"\n" else first + await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise InvalidRequest(f"the line of an event has more than the {MOST_LINE_BYTES} bytes allowed") from error
    head = _object(line, "the line of an event")
    kind = head.get("type")
    if not isinstance(kind, str) or not 1 <= len(kind) <= _LONGEST_TYPE:
        raise InvalidRequest(f"type is missing or no text of 1 to {_LONGEST_TYPE} characters")
    data = head.get("data") or {}
    if not isinstance(data, dict):
        raise InvalidRequest(f"data of {kind!r} is no JSON object")
    if length := _length(head, "data_length", MOST_DATA_BYTES):
        data = data | _object(await reader.readexactly(length), f"the data of {kind!r}")
    left = _length(head, "payload_length", MOST_PAYLOAD_BYTES)
    while left:
        left -= len(await reader.readexactly(min(left, _PIECE_BYTES)))
    return Event(kind, data)


def _length(head: dict[str, Any], name: str, most: int) -> int:
    length = head.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= most:
        raise InvalidRequest(f"{name} is {str(length)[:32]}, allowed are 0 to {most}")
    return length


def _object(encoded: bytes, what: str) -> dict[str, Any]:
    try:
        require_flat(encoded, what)
        value = json.loads(encoded)
        # Half of a surrogate pair is no character, and could not be sent on.
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidRequest(f"{what} is not JSON") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} is no JSON object but {type(value).__name__}")
    return value
