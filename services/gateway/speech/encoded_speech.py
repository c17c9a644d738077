"""Speech as the bytes of a file format: piece by piece, or as a whole file for answers that say in
front how long they are. What all whole files hold together is bounded.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

from cosyserve.audio.compressed import Compressed, FileEncoder, FileFormat, file_encoder
from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest, Overloaded
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.speaking import Utterance

MOST_BYTES = 600 * 2 * SAMPLE_RATE
"""Largest whole file: ten minutes of uncompressed audio."""
_RETRY_SECONDS = 5.0


async def encoded(utterance: Utterance, encoder: FileEncoder) -> AsyncGenerator[bytes]:
    """What the encoder gives for each chunk, without empty pieces. A codec runs in a thread: it
    takes up to a millisecond for a chunk.
    """
    in_thread = isinstance(encoder, Compressed)
    async with contextlib.aclosing(utterance.chunks()) as chunks:
        async for chunk in chunks:
            piece = await asyncio.to_thread(encoder.encode, chunk.audio) if in_thread else encoder.encode(chunk.audio)
            if piece:
                yield piece
    rest = await asyncio.to_thread(encoder.finish) if in_thread else encoder.finish()
    if rest:
        yield rest


class HeldAudio:
    """The bytes of whole files that are made or sent. most_bytes: of all together."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = 0

    @contextlib.contextmanager
    def room(self) -> Iterator["Room"]:
        """Room for one file while the block runs."""
        room = Room(self)
        try:
            yield room
        finally:
            self.bytes -= room.bytes

    def take(self, size: int) -> None:
        """Raises Overloaded when too much is held already."""
        if self.bytes + size > self._most_bytes:
            raise Overloaded(
                f"whole files hold {self.bytes} bytes, allowed are {self._most_bytes}; a stream needs none",
                retry_after=_RETRY_SECONDS,
                limit="memory",
            )
        self.bytes += size


class Room:
    """What one file holds."""

    def __init__(self, held: HeldAudio) -> None:
        self._held = held
        self.bytes = 0

    def take(self, size: int) -> None:
        """Raises Overloaded, and InvalidRequest for a file that is too long."""
        if self.bytes + size > MOST_BYTES:
            raise InvalidRequest(
                f"the whole file is larger than the {MOST_BYTES} bytes allowed; a stream may be longer"
            )
        self._held.take(size)
        self.bytes += size


async def whole_file(utterance: Utterance, file_format: FileFormat, sample_rate: int, room: Room) -> list[bytes]:
    """The pieces of the complete file; a WAV file with its length in the header. sample_rate: of
    the utterance, in hertz. Errors: those of `cosyserve.client` and of `Room.take`.
    """
    is_wav = file_format is FileFormat.WAV
    encoder = file_encoder(FileFormat.PCM if is_wav else file_format, sample_rate)
    pieces: list[bytes] = []
    async with contextlib.aclosing(encoded(utterance, encoder)) as parts:
        async for piece in parts:
            room.take(len(piece))
            pieces.append(piece)
    return [wav_header(sample_rate, room.bytes // 2), *pieces] if is_wav else pieces
