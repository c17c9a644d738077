"""One synthesis whose text is written while its audio is heard."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import grpc

from cosyserve import telemetry
from cosyserve.channel import as_error
from cosyserve.errors import InvalidRequest
from cosyserve.speech import Speech
from cosyserve.utterance import Chunk
from cosyserve.v1 import synthesis_pb2

Request = synthesis_pb2.StreamingSynthesizeRequest


class StreamingSpeech(Speech):
    """Write text and iterate to hear it, in one task or in two. A lost connection is raised as Unavailable: only the caller knows the text.

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
        bytes_per_sample: int,
        seconds: float | None,
        fragments: AsyncIterable[str] | None,
    ) -> None:
        """fragments: text that is written by itself, to its end, once the call has begun. What it raises ends the call and is raised to
        whoever listens."""
        super().__init__(channel, target, setup.request, bytes_per_sample, seconds, resumptions=0)
        self._setup = setup
        self._fragments = fragments
        self._pouring: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._failed: Exception | None = None

    async def write(self, fragment: str) -> None:
        """More text, in any cutting. Waits while the server is behind. Raises what ended the call, should it be over."""
        await self._write(Request(text=fragment))

    async def flush(self) -> None:
        """Have what was written so far spoken now, as if the sentence ended here."""
        await self._write(Request(flush=synthesis_pb2.Flush()))

    async def cancel(self) -> None:
        """Have the server stop at once; the iteration ends with what was sent until then, and a summary that says so."""
        await self._write(Request(cancel=synthesis_pb2.Cancel()))

    async def finish(self) -> None:
        """The text is over."""
        await self._started()
        await self._told(self._call.done_writing())

    async def close(self) -> None:
        if self._pouring is not None:
            self._pouring.cancel()
            await asyncio.gather(self._pouring, return_exceptions=True)
        await super().close()

    def _begin(self, seconds: float | None) -> Any:
        call: Any = self._stub.StreamingSynthesize(  # type: ignore[call-arg]  # written to, not given an iterator
            timeout=seconds, metadata=tuple(telemetry.outgoing())
        )
        self._ready = asyncio.ensure_future(self._introduce(call))
        # Whoever writes next is told of a failure; so is whoever listens.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        if self._fragments is not None:
            self._pouring = asyncio.create_task(self._pour(self._fragments))
        return call

    async def __anext__(self) -> Chunk:
        try:
            return await super().__anext__()
        except asyncio.CancelledError:
            if self._failed is None:
                raise
        raise self._failed

    async def _introduce(self, call: Any) -> None:
        await call.write(Request(setup=self._setup))
        # A write that crosses a refusal would replace its status by its own.
        await call.initial_metadata()

    async def _started(self) -> None:
        if self._call is None:
            self._call = self._begin_call()
        if self._ready is not None:
            await self._told(self._ready)

    async def _write(self, request: Request) -> None:
        await self._started()
        await self._told(self._call.write(request))

    async def _told(self, step: Any) -> None:
        try:
            await step
        except grpc.aio.AioRpcError as error:
            raise as_error(error, f"server at {self._target}") from error
        except asyncio.InvalidStateError as error:
            status = await self._status()
            if status.code() is grpc.StatusCode.OK:
                raise InvalidRequest("the synthesis is over, nothing can be written to it") from error
            raise as_error(status, f"server at {self._target}") from error

    async def _status(self) -> grpc.aio.AioRpcError:
        call = self._call
        return grpc.aio.AioRpcError(await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details())

    async def _pour(self, fragments: AsyncIterable[str]) -> None:
        """A write on a dead call is passed over: the iteration tells why it died."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            if self._ready is not None:
                await self._ready
            async for fragment in self._theirs(fragments):
                await self._call.write(Request(text=fragment))
            await self._call.done_writing()

    async def _theirs(self, fragments: AsyncIterable[str]) -> AsyncIterator[str]:
        """`fragments`; an error of theirs ends the call, so that half a text does not pass for a whole one."""
        try:
            async for fragment in fragments:
                yield fragment
        except Exception as error:
            self._failed = error
            self._call.cancel()
            raise
