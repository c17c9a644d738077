"""Speech as an iterator that blocks: chunks, header, summary, and text that is being written."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cosyserve.client.loop_thread import LoopThread
from cosyserve.client.speech import Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.types import Chunk, Header, Summary, TextWarning, WordTime


class BlockingSpeech:
    """Iterate to receive chunks; nothing is sent before the first step. Leaving its `with` block,
    or close(), cancels the call where it is still going on."""

    def __init__(self, loop: LoopThread, speech: Speech) -> None:
        self._loop, self._speech = loop, speech

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._loop.run(self._step())
        if chunk is None:
            raise StopIteration
        return chunk

    async def _step(self) -> Chunk | None:
        # A coroutine may not end with StopAsyncIteration.
        return await anext(self._speech, None)

    def read(self) -> bytes:
        """All audio that is still to come."""
        return self._loop.run(self._speech.read())

    def close(self) -> None:
        """Cancel the call if it is still going on."""
        if not self._loop.stopped:
            self._loop.run(self._speech.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def header(self) -> Header | None:
        """Set with the first chunk."""
        return self._speech.header

    @property
    def summary(self) -> Summary | None:
        """Set when the iteration has ended: without it the audio is not complete."""
        return self._speech.summary

    @property
    def words(self) -> list[WordTime]:
        """When each word is spoken, as far as the server has sent it."""
        return self._speech.words

    @property
    def warnings(self) -> list[TextWarning]:
        """What of the text is not spoken as it is written, as far as the server has sent it."""
        return self._speech.warnings

    @property
    def resumed(self) -> int:
        """How often the stream was resumed after a lost connection."""
        return self._speech.resumed

    @property
    def first_byte_seconds(self) -> float | None:
        """From the begin of the call to its first audio."""
        return self._speech.first_byte_seconds

    @property
    def first_audible_seconds(self) -> float | None:
        """From the begin of the call to the first sample above -40 dBFS."""
        return self._speech.first_audible_seconds


class BlockingStreamingSpeech(BlockingSpeech):
    """Speech of a text that is still being written."""

    def __init__(self, loop: LoopThread, speech: StreamingSpeech) -> None:
        super().__init__(loop, speech)
        self._writer = speech

    def write(self, fragment: str) -> None:
        """Send some text."""
        self._loop.run(self._writer.write(fragment))

    def flush(self) -> None:
        """Have what was written spoken now, without waiting for the end of its sentence."""
        self._loop.run(self._writer.flush())

    def cancel(self) -> None:
        """Stop at once: what is not spoken yet is dropped, and the stream ends with its summary."""
        self._loop.run(self._writer.cancel())

    def finish(self) -> None:
        """No text follows."""
        self._loop.run(self._writer.finish())
