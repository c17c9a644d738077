"""A synthesis whose text is written while its audio is played."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import grpc

from cosyserve.client.speech import Speech
from cosyserve.client.types import Chunk
from cosyserve.errors import CosyserveError, InvalidRequest, Unauthenticated
from cosyserve.rpc.calls import as_error, is_lost
from cosyserve.tasks import Changes, retrieve_error
from cosyserve.v1 import synthesis_pb2

MOST_CHARACTERS = 200_000
"""Characters kept of one stream, as many as a server accepts by default. A message without text
counts as one.
"""
_ASKING_SECONDS = 5.0
Part = synthesis_pb2.StreamingSynthesizeRequest | None
"""A message after the setup; None: the end of the text."""


class MessageReplayBuffer:
    """The messages in order, counted from 0. If they exceed the limit, those that were sent are
    dropped.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._first = 0
        self._characters = 0
        self.ended = False
        """Whether the end of the text was added."""

    @property
    def whole(self) -> bool:
        """Whether everything that was written is kept."""
        return self._characters <= MOST_CHARACTERS

    def add(self, part: Part) -> int:
        """Append a part; returns the number of parts."""
        self._parts.append(part)
        self.ended = self.ended or part is None
        self._characters += max(len(part.text), 1) if part is not None else 1
        return len(self)

    def part(self, at: int) -> Part:
        """The part number `at`, which must not have been forgotten."""
        return self._parts[at - self._first]

    def passed(self, count: int) -> None:
        """So many parts have been sent."""
        if not self.whole:
            del self._parts[: count - self._first]
            self._first = count

    def __len__(self) -> int:
        return self._first + len(self._parts)


Request = synthesis_pb2.StreamingSynthesizeRequest


class StreamingSpeech(Speech):
    """Write text and iterate to hear it, in one task or in two. A lost connection is taken up by
    the task that iterates: all text is sent again, and what is written meanwhile behind it.

    async with client.streaming_synthesize() as speech:
        await speech.write("Hello, ")
        await speech.write("world.")
        await speech.finish()
        async for chunk in speech: ...
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        target: str,
        setup: synthesis_pb2.StreamingSynthesizeSetup,
        seconds: float | None,
        fragments: AsyncIterable[str] | None,
        resume_seconds: float,
        key: str = "",
    ) -> None:
        """fragments: text that is written automatically, to its end, once the call has begun. Its
        exceptions end the call and are raised to the iterating task.
        """
        super().__init__(channel, target, setup.request, seconds, 0, resume_seconds, key)
        self._setup = setup
        self._fragments = fragments
        self._pouring: asyncio.Task[None] | None = None
        self._written = MessageReplayBuffer()
        self._sending: asyncio.Task[None] | None = None
        """The only task that writes to the call."""
        self._sent = 0
        """Parts that the current call has sent."""
        self._changes = Changes()
        self._failed: Exception | None = None

    async def write(self, fragment: str) -> None:
        """Write more text, in pieces of any length. Waits while the server is behind. Raises the
        error of a call that has ended, and InvalidRequest after finish() or close(), as the other
        writing methods do.
        """
        await self._write(Request(text=fragment))

    async def flush(self) -> None:
        """Have the text so far spoken now, as if the sentence ended here."""
        await self._write(Request(flush=synthesis_pb2.Flush()))

    async def cancel(self) -> None:
        """Have the server stop at once; the iteration ends with the audio sent until then, and a
        summary that says so. After finish() the server reads nothing more: use close() then.
        """
        await self._write(Request(cancel=synthesis_pb2.Cancel()))

    async def finish(self) -> None:
        """End the text."""
        await self._write(None)

    async def close(self) -> None:
        # First, so that the iterating task does not start another call while the writers of this
        # one end.
        self._closed.set()
        await asyncio.gather(*self._stop_writing(), return_exceptions=True)
        await super().close()

    def _stop_writing(self) -> "list[asyncio.Task[None]]":
        """Cancel the tasks that write, and return them."""
        tasks = [task for task in (self._pouring, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def _can_be_repeated(self) -> bool:
        return super()._can_be_repeated and self._written.whole and not self._setup.buffer_delay_milliseconds

    def _begin(self, seconds: float | None) -> Any:
        if self._failed is not None:
            raise self._failed
        call: Any = self._stub.StreamingSynthesize(  # type: ignore[call-arg]  # written to, not given an iterator
            timeout=seconds, metadata=self._metadata()
        )
        if self._sending is not None:
            self._sending.cancel()
        self._sent = 0
        self._sending = asyncio.create_task(self._send(call))
        self._sending.add_done_callback(self._on_sent)
        if self._fragments is not None and self._pouring is None:
            self._pouring = asyncio.create_task(self._pour(self._fragments))
        return call

    async def __anext__(self) -> Chunk:
        try:
            return await super().__anext__()
        except asyncio.CancelledError:
            if self._failed is None:
                raise
        except Exception:  # StopAsyncIteration behind the summary, too
            if self._call is not None and self._call.done():
                self._stop_writing()
            raise
        self._stop_writing()
        raise self._failed

    async def _send(self, call: Any) -> None:
        """Send the setup, then all written and future parts in order, to the end of the text."""
        await call.write(Request(setup=self._setup))
        # A write that crosses a refusal would replace its status.
        await call.initial_metadata()
        while True:
            while self._sent < len(self._written):
                part = self._written.part(self._sent)
                await (call.done_writing() if part is None else call.write(part))
                self._sent += 1
                self._written.passed(self._sent)
                self._changes.notify()
                if part is None:
                    return
            await self._changes.wait()

    def _on_sent(self, sending: "asyncio.Task[None]") -> None:
        retrieve_error(sending)  # raised by `_write`, and by the iteration
        self._changes.notify()

    async def _write(self, part: Request | None) -> None:
        """part: None for the end of the text. Returns when the call has sent it, or when the call
        is lost and will be resumed.
        """
        if self._written.ended or self._closed.is_set():
            how = "its text was ended" if self._written.ended else "it was closed"
            raise InvalidRequest(f"nothing can be written to this synthesis: {how}")
        place = self._written.add(part)
        self._changes.notify()
        if self._call is None:
            self._call = self._begin_call()
        while self._sent < place:
            if self._sending is not None and self._sending.done():
                error = await self._error()
                if not self._may_resume(error):
                    raise error
                return
            await self._changes.wait()

    async def _resume(self, error: CosyserveError, cause: grpc.aio.AioRpcError) -> None:
        await super()._resume(await self._refusal(cause) or error, cause)

    async def _refusal(self, cause: grpc.aio.AioRpcError) -> CosyserveError | None:
        """Why a call was refused whose status is lost: a server with keys refuses one before it
        reads, when the setup may still be on its way.
        """
        if self.header is not None or not is_lost(cause):
            return None
        request = synthesis_pb2.ListVoicesRequest(page_size=1)
        try:
            await self._stub.ListVoices(request, metadata=self._metadata(), timeout=_ASKING_SECONDS)  # type: ignore[misc]
        except grpc.aio.AioRpcError as refused:
            error = as_error(refused, f"server at {self._target}")
            return error if isinstance(error, Unauthenticated) else None
        return None

    async def _error(self) -> CosyserveError:
        """What ended the call."""
        call = self._call
        status = grpc.aio.AioRpcError(
            await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )
        if status.code() is grpc.StatusCode.OK:
            return InvalidRequest("the synthesis is over, nothing can be written to it")
        return await self._refusal(status) or as_error(status, f"server at {self._target}")

    async def _pour(self, fragments: AsyncIterable[str]) -> None:
        """A write on a dead call is ignored: the iteration raises its error."""
        with contextlib.suppress(CosyserveError):
            async with contextlib.aclosing(self._checked(fragments)) as checked:
                async for fragment in checked:
                    await self.write(fragment)
            await self.finish()

    async def _checked(self, fragments: AsyncIterable[str]) -> AsyncGenerator[str, None]:
        """Pass `fragments` on; their exception ends the call, so that half a text does not count as
        complete. A generator is closed in any case, so that what it holds is free when the stream
        ends, not when it is collected.
        """
        try:
            async for fragment in fragments:
                yield fragment
        except Exception as error:
            self._failed = error
            self._call.cancel()
            raise
        finally:
            if isinstance(fragments, AsyncGenerator):
                await fragments.aclose()
