"""One synthesis: its chunks in order, without gap or repeat, also across lost connections."""

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Any, Self

import grpc

from cosyserve import telemetry
from cosyserve.audio.audibility import FirstAudible
from cosyserve.audio.encoding import Encoding
from cosyserve.client.servers import Turns
from cosyserve.client.types import (
    Chunk,
    Header,
    Summary,
    TextWarning,
    WordTime,
    encoding_of,
    read_header,
    read_summary,
    read_warning,
)
from cosyserve.errors import CosyserveError, DeadlineExceeded, InternalFault, Overloaded, Unavailable
from cosyserve.keys.secret import metadata_of
from cosyserve.rpc.calls import as_error, read
from cosyserve.tasks import unless_set
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc

_RECONNECT_SECONDS = 30.0
_BACK_OFF_SECONDS = 0.2
_LONGEST_BACK_OFF_SECONDS = 2.0
_MOST_DOUBLINGS = 10
RESUME_SECONDS = 60.0
"""Long enough for a killed server to be restarted and to load its models."""


class Speech:
    """Iterate to get the audio; nothing is sent before the first step. Leaving the `async with`
    block, or close(), cancels the call.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        target: str,
        request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.ConvertVoiceRequest,
        seconds: float | None,
        resumptions: int,
        resume_seconds: float,
        key: str = "",
    ) -> None:
        """resumptions, resume_seconds: as in `cosyserve.client.AsyncClient.synthesize`. key: of the
        caller; empty: none.
        """
        self._key = key
        self.header: Header | None = None
        """Set with the first chunk."""
        self.words: list[WordTime] = []
        """When each word is spoken, as far as the server has reported; empty for models without
        alignment.
        """
        self.warnings: list[TextWarning] = []
        """Warnings about text that is not spoken as it is written, so far."""
        self.summary: Summary | None = None
        """Set at the end of the iteration: without it the audio is not complete."""
        self.resumed = 0
        """How often a lost connection was resumed, or another server was asked."""
        self.first_byte_seconds: float | None = None
        """From the start of the call to its first audio."""
        self._begun = 0.0
        self._audible: FirstAudible | None = None
        self._channel = channel
        self._stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        self._target = target
        self.request = request
        self.encoding = encoding_of(request.audio_format)
        """What was asked for."""
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._resumptions = resumptions
        self._resume_seconds = resume_seconds
        self._failures = 0
        """Failures in a row, since the last audio."""
        self._lost_at: float | None = None
        """When the first of these failures was seen, on the monotonic clock."""
        self._closed = asyncio.Event()
        self._call: Any = None
        self._turns = Turns(channel)
        self._last: Summary | None = None
        self._expected_index = 0
        self._given = 0
        self._position = request.start_sample

    @property
    def first_audible_seconds(self) -> float | None:
        """From the start of the call until a player that starts with the first chunk plays the
        first sample above -40 dBFS; None before that, and in a compressed encoding. Measured here
        when chunks are taken; `summary` has the measurement of the server.
        """
        return None if self._audible is None else self._audible.seconds

    @property
    def bytes_per_sample(self) -> int:
        """Raises ValueError for a compressed encoding, whose bytes are no samples."""
        if not isinstance(self.encoding, Encoding):
            raise ValueError(f"the bytes of {self.encoding} are no samples")
        return self.encoding.bytes_per_sample

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while self.summary is None:
            if self._closed.is_set():
                raise asyncio.CancelledError
            try:
                response = await self._next()
            except grpc.aio.AioRpcError as lost:
                await self._resume(as_error(lost, f"server at {self._target}"), lost)
                continue
            if response is None:
                self.summary = self._last
            elif response.audio:
                return self._chunk(response.audio, response.start_sample)
        raise StopAsyncIteration

    async def read(self) -> bytes:
        """All remaining audio."""
        return b"".join([chunk.audio async for chunk in self])

    async def close(self) -> None:
        """Cancel the call if the stream is still running, also while it is being resumed; a task
        that waits for its next chunk is cancelled, and no further call is started.
        """
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _next(self) -> synthesis_pb2.SynthesizeResponse | None:
        """The next message, checked; None at the end of a complete stream."""
        if self._call is None:
            self._expected_index, self._last = 0, None
            self._call = self._begin_call()
        message: synthesis_pb2.SynthesizeResponse | None = await read(self._call)
        if message is None:
            if self._last is None:
                raise InternalFault(
                    f"server at {self._target}: the stream ended without a summary after {self._position} samples"
                )
            return None
        self._check(message)
        if message.HasField("header"):
            self._read_header(message.header)
        if isinstance(self.request, synthesis_pb2.SynthesizeRequest):
            new = {*message.retried_sentences}.difference(self.request.retried_sentences)
            self.request.retried_sentences.extend(new)
            if self.request.least_euler_steps and self.header is not None:
                self.request.euler_steps = self.header.euler_steps
        # A resumed stream sends the words of the first sentences and all warnings again.
        known = self.words[-1].sentence if self.words else -1
        self.words += [
            WordTime(word.text, word.start_seconds, word.end_seconds, word.sentence)
            for word in message.words
            if word.sentence > known
        ]
        self.warnings += [news for news in map(read_warning, message.warnings) if news not in self.warnings]
        if message.HasField("summary"):
            self._last = read_summary(message.summary)
        return message

    def _read_header(self, message: synthesis_pb2.SynthesisHeader) -> None:
        """Samples are counted from the onset: a server that trims it differently from the one
        before cannot continue at its sample.
        """
        before, self.header = self.header, read_header(message)
        if before is not None and before.onset != self.header.onset:
            raise InternalFault(
                f"server at {self._target}: took up a {before.onset} onset with a {self.header.onset} one"
            )

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.001)

    def _begin_call(self) -> Any:
        self._begun = self._begun or time.monotonic()
        return self._begin(self._remaining())

    def _begin(self, seconds: float | None) -> Any:
        """The call; `seconds` is its deadline."""
        method: Any = (
            self._stub.Synthesize
            if isinstance(self.request, synthesis_pb2.SynthesizeRequest)
            else self._stub.ConvertVoice
        )
        return method(self.request, timeout=seconds, metadata=self._metadata())

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*telemetry.outgoing(), *metadata_of(self._key))

    def _check(self, message: synthesis_pb2.SynthesizeResponse) -> None:
        if message.chunk_index != self._expected_index:
            raise InternalFault(
                f"server at {self._target}: chunk {message.chunk_index} arrived where {self._expected_index} was due"
            )
        # A file says how far its encoder had got, which is not known beforehand.
        due = self._position if isinstance(self.encoding, Encoding) else max(self._position, message.start_sample)
        if message.audio and message.start_sample != due:
            raise InternalFault(
                f"server at {self._target}: chunk {message.chunk_index} begins at sample {message.start_sample}, "
                f"expected {due}"
            )
        self._expected_index += 1

    def _chunk(self, audio: bytes, start_sample: int) -> Chunk:
        now = time.monotonic() - self._begun
        if self.first_byte_seconds is None:
            self.first_byte_seconds = now
        if self._audible is None and self.header is not None and isinstance(self.encoding, Encoding):
            self._audible = FirstAudible(self.encoding, self.header.sample_rate)
        if self._audible is not None:
            self._audible.arrived(now, audio)
        chunk = Chunk(audio, self._given, start_sample)
        self._given += 1
        self._position = start_sample
        if isinstance(self.encoding, Encoding):
            self._position += len(audio) // self.encoding.bytes_per_sample
        self._failures, self._turns.number, self._lost_at = 0, 0, None
        return chunk

    @property
    def _can_be_repeated(self) -> bool:
        """Whether the request can be sent again; no compressed file is continued in the middle."""
        return isinstance(self.encoding, Encoding) or not self._given

    def _may_resume(self, error: CosyserveError) -> bool:
        """Whether resuming may help. A stream that has begun is resumed also if the server
        is full.
        """
        if self._closed.is_set() or not self._can_be_repeated:
            return False
        if self._turns.possible(self._call, error):
            return True
        if isinstance(error, Unavailable) and self._failures < self._resumptions:
            return True
        return self.header is not None and isinstance(error, Unavailable | Overloaded) and self._resume_left() > 0

    def _resume_left(self) -> float:
        """Seconds left to resume a lost stream."""
        return self._resume_seconds - (0.0 if self._lost_at is None else time.monotonic() - self._lost_at)

    async def _resume(self, error: CosyserveError, cause: grpc.aio.AioRpcError) -> None:
        """Have the next step request the missing audio. Raises `error` if that would not help, or
        was tried often or long enough.
        """
        self._lost_at = time.monotonic() if self._lost_at is None else self._lost_at
        # A write that crosses the deadline replaces its status by one that reads as a lost call.
        if isinstance(error, Unavailable) and self._deadline is not None and time.monotonic() >= self._deadline:
            raise DeadlineExceeded(f"the time given is over; before that: {error.message}") from cause
        if not self._may_resume(error):
            raise error from cause
        if self._turns.away(self._call, error):
            self.resumed += 1
            self._begin_again()
            return
        delay = error.retry_after or _BACK_OFF_SECONDS * 2 ** min(self._failures, _MOST_DOUBLINGS)
        if self.header is not None or not error.retry_after:
            delay = min(delay, _LONGEST_BACK_OFF_SECONDS)  # a longer hint is for callers who hear nothing yet
        by_number = isinstance(error, Unavailable) and self._failures < self._resumptions
        if not by_number and delay > self._resume_left():
            raise error from cause
        if self._deadline is not None and time.monotonic() + delay >= self._deadline:
            raise DeadlineExceeded(f"the time given is over; before that: {error.message}") from cause
        self._failures += 1
        self.resumed += 1
        await unless_set(self._closed, asyncio.sleep(delay))
        patience = _RECONNECT_SECONDS if by_number else min(self._resume_left(), _RECONNECT_SECONDS)
        remaining = self._remaining()
        with contextlib.suppress(TimeoutError):  # then the call itself says what is wrong
            async with asyncio.timeout(patience if remaining is None else min(patience, remaining)):
                await unless_set(self._closed, self._channel.channel_ready())
        self._begin_again()

    def _begin_again(self) -> None:
        """The next step requests the missing audio."""
        if self.header is not None:
            self.request.seed = self.header.seed
            self.request.start_sample = self._position
            self.request.engine = self.header.engine
            self.request.onset = synthesis_pb2.Onset.Value(f"ONSET_{self.header.onset.upper()}")
        self._call = None
