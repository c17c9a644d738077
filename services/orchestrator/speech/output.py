"""The sound of one utterance as the bytes of the requested encoding, piece by piece."""

import asyncio
from dataclasses import dataclass

from cosyserve.audio.compressed import FileEncoder, FileFormat, file_encoder, most_bytes
from cosyserve.audio.encoding import AnyEncoding, Encoding, OutputStream
from cosyserve.tasks import retrieve_error


@dataclass(frozen=True)
class Piece:
    """audio: the next bytes of the response. sound: the samples by which they are counted, in
    `Output.sound_encoding`: of a compressed encoding those that the encoder has received since the
    piece before.
    """

    audio: bytes
    sound: bytes


class Output:
    """Takes 24 kHz s16le and gives pieces, some of them empty. The bytes of all pieces together do
    not depend on how the sound was cut.
    """

    def __init__(self, encoding: AnyEncoding, sample_rate: int, start_sample: int = 0) -> None:
        """start_sample: as in `OutputStream`; 0 in a compressed encoding. An encoder is made in a
        thread, which is loading its library while the first sound is computed; without a running
        event loop only sample encodings are possible.
        """
        self.sound_encoding = encoding if isinstance(encoding, Encoding) else Encoding.LINEAR16
        self.sample_rate = sample_rate
        self._file_format = None if isinstance(encoding, Encoding) else FileFormat(encoding.value)
        self._samples = OutputStream(self.sound_encoding, sample_rate, start_sample)
        self._making: asyncio.Future[FileEncoder] | None = None
        if self._file_format is not None:
            self._making = asyncio.ensure_future(asyncio.to_thread(file_encoder, self._file_format, sample_rate))
            self._making.add_done_callback(retrieve_error)  # the call may end before its first sound
        self._received = b""

    @property
    def position(self) -> int:
        """Samples produced so far, as in `OutputStream`."""
        return self._samples.position

    @property
    def most_bytes_per_second(self) -> int:
        """Bytes that a second of audio takes at most."""
        if self._file_format is None:
            return self.sample_rate * self.sound_encoding.bytes_per_sample
        return most_bytes(self._file_format, self.sample_rate)

    def samples_in(self, sound: bytes) -> int:
        """The number of samples of a piece."""
        return len(sound) // self.sound_encoding.bytes_per_sample

    async def feed(self, pcm: bytes) -> Piece:
        """The next sound. Of a compressed encoding a piece without bytes has no samples either:
        they count with the next one.
        """
        return await self._encoded(self._samples.feed(pcm), last=False)

    async def finish(self) -> Piece:
        """The rest. Raises ValueError as `OutputStream.finish`."""
        return await self._encoded(self._samples.finish(), last=True)

    async def _encoded(self, sound: bytes, *, last: bool) -> Piece:
        if self._making is None:
            return Piece(sound, sound)
        encoder = await asyncio.shield(self._making)
        self._received += sound
        # In a thread: it takes up to some milliseconds for a second of sound.
        audio = await asyncio.to_thread(encoder.encode, sound)
        if last:
            audio += await asyncio.to_thread(encoder.finish)
        if not audio:
            return Piece(b"", b"")
        sound, self._received = self._received, b""
        return Piece(audio, sound)
