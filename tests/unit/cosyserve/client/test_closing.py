"""A speech that is closed begins no further call, whatever it waits for; and tries that fail are
counted without end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from cosyserve import errors
from cosyserve.client import AsyncClient
from cosyserve.client.speech import Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.v1 import synthesis_pb2_grpc
from tests.stacks.scripted_server import listening
from tests.unit.cosyserve.client.serving import RESPONSE, header_of, serving

OPENED = pytest.mark.parametrize(
    "open_it", [lambda client: client.synthesize("x"), lambda client: client.streaming_synthesize()]
)


class Breaking(synthesis_pb2_grpc.SynthesisServiceServicer):
    """Sends one chunk, then loses the first call; goes on for ever in any other."""

    def __init__(self) -> None:
        self.begun = self.open = 0

    async def Synthesize(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.begun, self.open = self.begun + 1, self.open + 1
        try:
            for index in range(1000):
                at = request.start_sample + 100 * index
                header = None if index else header_of(request)
                yield RESPONSE(audio=bytes(200), chunk_index=index, start_sample=at, header=header)
                if self.begun == 1:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
                await asyncio.sleep(0.01)
        finally:
            self.open -= 1

    async def StreamingSynthesize(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        setup = (await anext(request_iterator)).setup
        await context.send_initial_metadata(())
        async for message in self.Synthesize(setup.request, context):
            yield message


@OPENED
async def test_a_stream_that_is_taken_up_again_is_hung_up(open_it: Callable[[AsyncClient], Speech]) -> None:
    """While it waits for the time to ask again."""
    door = Breaking()
    async with serving(door) as client:
        speech = open_it(client)
        await asyncio.wait_for(anext(speech), 5)
        reading = asyncio.create_task(speech.read())
        while not speech.resumed:
            await asyncio.sleep(0.001)
        await speech.close()
        await asyncio.wait([reading], timeout=1.0)
        assert reading.cancelled(), "the iteration goes on behind close()"
        await asyncio.sleep(0.4)
        assert (door.begun, door.open) == (1, 0)
        with pytest.raises(asyncio.CancelledError):
            await anext(speech)


async def test_a_stream_that_waits_for_a_server_is_hung_up() -> None:
    """Nothing listens when it is taken up: it waits for the connection, for up to 30 s."""
    async with contextlib.AsyncExitStack() as exits:
        door = listening(synthesis_pb2_grpc.add_SynthesisServiceServicer_to_server, Breaking())
        async with AsyncClient(await exits.enter_async_context(door)) as client:
            speech = client.synthesize("x")
            await anext(speech)
            await exits.aclose()
            reading = asyncio.create_task(speech.read())
            done, _ = await asyncio.wait([reading], timeout=0.5)
            assert not done
            await speech.close()
            await asyncio.wait([reading], timeout=1.0)
            assert reading.cancelled()


@OPENED
async def test_a_stream_that_is_closed_first_asks_for_nothing(open_it: Callable[[AsyncClient], Speech]) -> None:
    door = Breaking()
    async with serving(door) as client:
        speech = open_it(client)
        await speech.close()
        with pytest.raises(asyncio.CancelledError):
            await anext(speech)
        if isinstance(speech, StreamingSpeech):
            with pytest.raises(errors.InvalidRequest, match="it was closed"):
                await speech.write("text")
        assert door.begun == 0


async def test_however_often_it_fails_the_next_try_is_due() -> None:
    """Two to the power of 1024 is no float."""
    async with AsyncClient("127.0.0.1:1") as client:
        speech = client.synthesize("x", resumptions=10_000, timeout=0.5)
        speech._failures = 5000
        with pytest.raises(errors.DeadlineExceeded):
            await speech.read()
