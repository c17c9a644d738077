"""The client without asyncio against a scripted server: the same chunks, errors, text streams, and
no thread left.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace

from cosyserve import Client
from cosyserve.client import AsyncClient
from cosyserve.client.loop_thread import LoopThread
from cosyserve.errors import CosyserveError, DeadlineExceeded, NotFound, Unavailable
from cosyserve.rpc.server import running
from tests.unit.cosyserve.client.serving import SETTINGS, WHOLE, Door, speech_of
from tests.unit.cosyserve.rpc.small_service import NAME, loading

PIECES = [WHOLE[at : at + 50] for at in range(0, 200, 50)]


class Scripted(Door):
    """Speaks WHOLE, or waits for ever after the first piece where the text says so."""

    def __init__(self) -> None:
        super().__init__([self._answer])
        self.traces: list[str] = []
        self.cancelled, self.waiting = threading.Event(), threading.Event()

    async def _answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.traces += [value for key, value in context.invocation_metadata() if key == "traceparent"]
        if request.voice == "nobody":
            raise NotFound("no voice 'nobody'")
        for message in speech_of(request):
            yield message
            if request.text == "Wait.":
                self.waiting.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def client(scripted: Scripted) -> Iterator[Client]:
    """A client of a scripted server, for a test without an event loop: the server has one in its
    own thread.
    """
    loop = LoopThread()
    server = running(NAME, SETTINGS, loading(scripted))
    service = loop.run(server.__aenter__())
    with Client(f"127.0.0.1:{service.port}") as client:
        client.connect(10)
        yield client
    loop.run(server.__aexit__(None, None, None))
    loop.stop()


def test_chunks_arrive_one_by_one_and_as_a_whole(client: Client) -> None:
    with client.synthesize("Hello.", seed=7) as speech:
        assert speech.header is None
        assert [chunk.audio for chunk in speech] == PIECES
        assert (speech.header.seed, speech.summary.sentences, speech.resumed) == (7, 2, 0)
        assert next(speech, None) is None
    assert client.synthesize("Hello.").read() == WHOLE
    audio, header, summary = client.synthesize_unary("Hello.")
    assert (audio, header.seed, summary.sentences) == (WHOLE, 5, 2)
    assert [voice.id for voice in client.voices()] == ["narrator"]


def test_text_is_sent_while_it_is_written(client: Client, scripted: Scripted) -> None:
    def fragments() -> Iterator[str]:
        yield "Hel"
        time.sleep(0.05)  # an iterator may block
        yield "lo."

    assert client.streaming_synthesize(fragments()).read() == WHOLE
    with client.streaming_synthesize() as speech:
        speech.write("By ")
        speech.write("hand.")
        speech.finish()
        assert speech.read() == WHOLE
    assert "".join(scripted.texts) == "Hello.By hand."


def test_errors_are_those_of_the_other_client(client: Client) -> None:
    with pytest.raises(NotFound, match="no voice 'nobody'"):
        client.synthesize("Hello.", voice="nobody").read()


def test_leaving_early_cancels_the_call(client: Client, scripted: Scripted) -> None:
    with client.synthesize("Wait.") as speech:
        assert next(speech).audio == PIECES[0]
    assert scripted.cancelled.wait(5)


def test_several_threads_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: client.synthesize("Hello.").read(), range(8), timeout=20)) == [WHOLE] * 8


def test_a_trace_of_the_caller_goes_on(client: Client, scripted: Scripted) -> None:
    context = trace.SpanContext(0xAB << 120, 0xCD, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        client.synthesize("Hello.").read()
    assert [value.split("-")[1] for value in scripted.traces] == [f"{0xAB << 120:032x}"]


def test_an_iterator_of_text_that_fails_ends_the_stream_and_nothing_else(client: Client) -> None:
    def failing(error: BaseException) -> Iterator[str]:
        yield "Hello."
        raise error

    for error in (ValueError("no text"), SystemExit(3)):
        with pytest.raises((ValueError, RuntimeError)):
            client.streaming_synthesize(failing(error)).read()
    assert client.synthesize("Hello.").read() == WHOLE


def test_a_stream_that_ends_early_stops_asking_its_iterator(client: Client) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "On and on. "

    with pytest.raises(DeadlineExceeded):
        client.streaming_synthesize(endless(), timeout=0.5).read()
    for thread in [thread for thread in threading.enumerate() if thread.name == "cosyserve-fragments"]:
        thread.join(5)
        assert not thread.is_alive()


def test_closing_a_client_ends_what_waits_for_it(client: Client, scripted: Scripted) -> None:
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(client.synthesize("Wait.").read)
        assert scripted.waiting.wait(10)
        client.close()
        assert isinstance(waiting.exception(10), CosyserveError)
    with pytest.raises(Unavailable, match="the client is closed"):
        client.voices()


def test_no_thread_is_left_and_a_closed_client_closes_again() -> None:
    client = Client("127.0.0.1:9")
    with pytest.raises(Unavailable):
        client.connect(5)
    client.close()
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "cosyserve-client"]


def test_both_clients_have_the_same_calls() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)
