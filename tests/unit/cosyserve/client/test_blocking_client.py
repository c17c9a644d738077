"""The client without asyncio against a scripted server: the same chunks, errors, text streams, and
no thread left.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from opentelemetry import trace

from cosyserve import Client
from cosyserve.client import AsyncClient
from cosyserve.client.loop_thread import LoopThread
from cosyserve.errors import CosyserveError, DeadlineExceeded, NotFound, Unavailable
from cosyserve.rpc.server import running
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc, voice_pb2
from tests.unit.cosyserve.client.serving import SETTINGS
from tests.unit.cosyserve.rpc.small_service import NAME, loading

PIECES = [bytes([n]) * 40 for n in range(1, 5)]


class Scripted(synthesis_pb2_grpc.SynthesisServiceServicer):
    """Speaks PIECES, or waits for ever after the first one where the text says so."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.traces: list[str] = []
        self.cancelled = threading.Event()
        self.waiting = threading.Event()

    async def Synthesize(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.traces += [value for key, value in context.invocation_metadata() if key == "traceparent"]
        if request.voice == "nobody":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no voice 'nobody'")
        async for message in self._speak(request, waits=request.text == "Wait."):
            yield message

    async def StreamingSynthesize(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for request in request_iterator:
            if request.HasField("setup"):
                await context.send_initial_metadata(())
                setup = request.setup
            elif request.HasField("text"):
                self.texts.append(request.text)
        async for message in self._speak(setup.request, waits=False):
            yield message

    async def SynthesizeUnary(self, request: Any, context: Any) -> Any:
        header = pb.SynthesisHeader(seed=5, audio_format=request.audio_format)
        return pb.SynthesizeUnaryResponse(audio=PIECES[0], header=header, summary=pb.SynthesisSummary(sentences=1))

    async def ListVoices(self, request: Any, context: Any) -> Any:
        return pb.ListVoicesResponse(voices=[voice_pb2.VoiceSummary(id="narrator")])

    async def _speak(self, request: Any, *, waits: bool) -> AsyncIterator[Any]:
        for index, piece in enumerate(PIECES):
            message = pb.SynthesizeResponse(audio=piece, chunk_index=index, start_sample=20 * index)
            if index == 0:
                message.header.CopyFrom(pb.SynthesisHeader(seed=7, audio_format=request.audio_format))
            yield message
            if waits:
                self.waiting.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
        end = 20 * len(PIECES)
        yield pb.SynthesizeResponse(chunk_index=len(PIECES), start_sample=end, summary=pb.SynthesisSummary(sentences=1))


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
        assert speech.header is not None
        assert speech.summary is not None
        assert (speech.header.seed, speech.summary.sentences, speech.resumed) == (7, 1, 0)
        assert next(speech, None) is None
    assert client.synthesize("Hello.").read() == b"".join(PIECES)
    audio, header, summary = client.synthesize_unary("Hello.")
    assert (audio, header.seed, summary.sentences) == (PIECES[0], 5, 1)
    assert [voice.id for voice in client.voices()] == ["narrator"]


def test_text_is_sent_while_it_is_written(client: Client, scripted: Scripted) -> None:
    def fragments() -> Iterator[str]:
        yield "Hel"
        time.sleep(0.05)  # an iterator may block
        yield "lo."

    assert client.streaming_synthesize(fragments()).read() == b"".join(PIECES)
    with client.streaming_synthesize() as speech:
        speech.write("By ")
        speech.write("hand.")
        speech.finish()
        assert speech.read() == b"".join(PIECES)
    assert "".join(scripted.texts) == "Hello.By hand."


def test_errors_are_those_of_the_other_client(client: Client) -> None:
    with pytest.raises(NotFound, match="no voice 'nobody'"):
        client.synthesize("Hello.", voice="nobody").read()


def test_leaving_early_cancels_the_call(client: Client, scripted: Scripted) -> None:
    with client.synthesize("Wait.") as speech:
        assert next(speech).audio == PIECES[0]
    assert scripted.cancelled.wait(5)


def test_several_threads_share_a_client(client: Client) -> None:
    heard: list[bytes] = []
    threads = [threading.Thread(target=lambda: heard.append(client.synthesize("Hello.").read())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert heard == [b"".join(PIECES)] * 8


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
    assert client.synthesize("Hello.").read() == b"".join(PIECES)


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
    ended = threading.Event()

    def wait() -> None:
        with contextlib.suppress(CosyserveError):
            client.synthesize("Wait.").read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert scripted.waiting.wait(10)
    client.close()
    assert ended.wait(10)
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
