"""One WebSocket and the contexts that are spoken over it.

A context that fails says so in a message; what fails the connection closes it. When it ends,
however it does, all of its contexts are cancelled in every stage.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from starlette.websockets import WebSocket, WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.errors import CallerStalled, CosyserveError, Unauthenticated
from cosyserve.tasks import cancel_all, retrieve_error
from services.gateway.elevenlabs.error_detail import error_message
from services.gateway.elevenlabs.output_format import read_output_format
from services.gateway.elevenlabs.sockets.context import Context, Form
from services.gateway.elevenlabs.sockets.messages import (
    LONGEST_IDLE_SECONDS,
    Received,
    final_message,
    read_message,
    read_query,
)
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.speaking import Speaker, key_of, speaker_of
from services.gateway.websocket.conversation import LOST, NORMAL, Conversation, close_code

log = logging.getLogger(__name__)
Tags = dict[str, object]
"""What names the context of a message."""


class Event(Enum):
    """What happens besides messages of the caller."""

    CONTEXT_ENDED = "a context has ended"
    SILENCE = "no message came for as long as a context may be idle"


class Connection:
    """form: of all contexts."""

    def __init__(self, conversation: Conversation, form: Form) -> None:
        self._conversation, self._form = conversation, form
        self._sending = asyncio.Lock()
        self._running: dict[Context, asyncio.Task[None]] = {}
        self._stopped: set[Context] = set()
        self._cancelled = False

    @property
    def contexts(self) -> list[Context]:
        """Those that have not ended."""
        return list(self._running)

    def start(self, tags: Tags, *, after: Context | None = None, alone: bool = False) -> Context:
        """Begin a context. after: one that has to end before it. alone: its failure is one of the
        connection.
        """
        context = Context(self._form, lambda message: self.send(message | tags))
        before = None if after is None else self._running.get(after)
        task = asyncio.create_task(self._run(context, tags, before, alone))
        task.add_done_callback(retrieve_error)  # of several that fail, the first one is raised
        self._running[context] = task
        return context

    async def stop(self, context: Context) -> None:
        """Cancel a context in every stage; its last message follows."""
        self._stopped.add(context)
        await context.stop()

    async def send(self, message: dict[str, object]) -> None:
        """Raises CallerStalled when the caller does not read it in time, WebSocketDisconnect."""
        async with self._sending:
            try:
                await self._conversation.send(message)
            except RuntimeError as error:  # another context has noticed it first
                raise WebSocketDisconnect(LOST) from error

    async def refuse(self, failure: Failure, tags: Tags) -> None:
        """Say that a context cannot be begun."""
        await self.send(error_message(failure) | tags)
        await self.send(final_message() | tags)

    async def next(self) -> Received | Event:
        """The next message of the caller, or what happens before it. Raises what has failed the
        connection, and InvalidRequest for a message that is none.
        """
        self._conversation.renew_idle_time()
        receiving = asyncio.ensure_future(self._conversation.first(engaged=bool(self._running)))
        try:
            await asyncio.wait((receiving, *self._running.values()), return_when=asyncio.FIRST_COMPLETED)
            over = [context for context, task in self._running.items() if task.done()]
            tasks = [self._running.pop(context) for context in over]
            self._stopped.difference_update(over)
            for task in tasks:
                task.result()
            if not receiving.done():
                return Event.CONTEXT_ENDED
            if isinstance(receiving.exception(), CallerStalled):
                return Event.SILENCE
            message = read_message(receiving.result())
            self._form.identify(message.key)
            return message
        finally:
            await cancel_all((receiving,))  # a message that has come is kept

    async def cancel(self) -> None:
        """Cancel everything in every stage. Contexts have no last message then: a context without
        speech would seem to have been spoken, in front of the message that says what failed.
        """
        self._cancelled = True
        await asyncio.gather(*(context.stop() for context in self._running), return_exceptions=True)
        await cancel_all(list(self._running.values()))

    async def _run(self, context: Context, tags: Tags, before: "asyncio.Task[None] | None", alone: bool) -> None:
        try:
            if before is not None:
                await asyncio.wait((before,))
            await context.run()
        except asyncio.CancelledError:
            if context not in self._stopped:
                raise
        except (CallerStalled, Unauthenticated):
            raise
        except CosyserveError as error:
            if context not in self._stopped:  # otherwise it is what the cancelled call gave its writer
                if alone:
                    raise
                telemetry.failed(error)
                await self.send(error_message(failure_of(error)) | tags)
        if not self._cancelled:
            await self.send(final_message() | tags)


async def serve(socket: WebSocket, voice_id: str, talk: Callable[[Connection], Awaitable[None]]) -> None:
    """Accept a WebSocket, run `talk` to its end, and close it; a failure is its last message."""
    await socket.accept()
    service: Speaker = socket.app.state.speaker
    conversation = Conversation(socket, service.reader_seconds, LONGEST_IDLE_SECONDS)
    try:
        speaker = speaker_of(socket)
        query = read_query(socket.query_params)
        output_format = read_output_format(query.output_format)
        conversation = Conversation(socket, speaker.reader_seconds, query.idle_seconds)
        form = Form(speaker, voice_id, query, output_format, key=bool(key_of(socket)))
        connection = Connection(conversation, form)
        try:
            await talk(connection)
        finally:
            await connection.cancel()
        await conversation.close(NORMAL)
    except WebSocketDisconnect:
        await conversation.close(NORMAL)
    except asyncio.CancelledError:
        await conversation.cut()
        raise
    except Exception as error:
        telemetry.failed(error)
        if not isinstance(error, CosyserveError):
            log.exception("a connection failed")
        failure = failure_of(error)
        await conversation.refuse(error_message(failure), close_code(failure), failure.code)
