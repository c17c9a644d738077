"""Clients of several orchestrators behind one name: calls are spread, and none is lost when one of
them dies, leaves, or is full.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.spread_channel import SpreadChannel
from cosyserve.errors import NotFound, Overloaded, SettingsError, Unavailable
from cosyserve.rpc.server import ServerSettings, Service, running
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.calls import until
from tests.stacks.certificates import Authority, Folder
from tests.stacks.dns.name_server import NameServer, name_server
from tests.stacks.gateway_server import gateway
from tests.stacks.secured import served, tls_of

NAME = "speech.test"
SERVICE = "cosyserve.v1.SynthesisService"
CHUNKS = 4


class Speaker(synthesis_pb2_grpc.SynthesisServiceServicer):
    """Speaks CHUNKS chunks from the sample asked for, each of 100 samples of its number."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        """The samples at which they began."""
        self.inside = 0
        self.full = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.deleted = 0
        self.dies_deleting = False

    async def _speak(self, request: synthesis_pb2.SynthesizeRequest) -> AsyncIterator[synthesis_pb2.SynthesizeResponse]:
        self.requests.append(request.start_sample)
        if self.full:
            raise Overloaded("16 requests are under way, as many as allowed", retry_after=0.4)
        self.inside += 1
        try:
            for index, at in enumerate(range(request.start_sample, 100 * CHUNKS, 100)):
                if at:
                    await self.may_go_on.wait()
                message = synthesis_pb2.SynthesizeResponse(
                    audio=bytes([at // 100, 0]) * 100, chunk_index=index, start_sample=at
                )
                if index == 0:
                    message.header.CopyFrom(
                        synthesis_pb2.SynthesisHeader(
                            seed=7, engine="e", audio_format=request.audio_format, onset=synthesis_pb2.ONSET_TRIMMED
                        )
                    )
                yield message
            # Also for a caller that has all sound and lost its server before this.
            left = len(range(request.start_sample, 100 * CHUNKS, 100))
            yield synthesis_pb2.SynthesizeResponse(chunk_index=left, summary=synthesis_pb2.SynthesisSummary())
        finally:
            self.inside -= 1

    async def Synthesize(self, request: Any, context: Any) -> AsyncIterator[synthesis_pb2.SynthesizeResponse]:
        async with contextlib.aclosing(self._speak(request)) as messages:
            async for message in messages:
                yield message

    async def StreamingSynthesize(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        setup = (await anext(aiter(requests))).setup
        await context.send_initial_metadata(())
        async with contextlib.aclosing(self._speak(setup.request)) as messages:
            async for message in messages:
                yield message

    async def ListVoices(self, request: Any, context: Any) -> synthesis_pb2.ListVoicesResponse:
        if self.full:
            raise Overloaded("full")
        return synthesis_pb2.ListVoicesResponse()

    async def DeleteVoice(self, request: Any, context: Any) -> synthesis_pb2.DeleteVoiceResponse:
        if self.dies_deleting:
            raise Unavailable("gone after it was deleted")
        raise NotFound("there is no such voice")


WHOLE = b"".join(bytes([number, 0]) * 100 for number in range(CHUNKS))


class Servers:
    """On 127.0.0.N, all on one port, behind NAME."""

    def __init__(self, names: NameServer, exits: contextlib.AsyncExitStack) -> None:
        self.names, self._exits = names, exits
        self.port = 0
        self.speakers: dict[int, Speaker] = {}
        self.services: dict[int, Service] = {}
        self.exits: dict[int, contextlib.AsyncExitStack] = {}

    async def start(self, *numbers: int, **settings: Any) -> None:
        for number in numbers:
            speaker = self.speakers[number] = Speaker()
            self.exits[number] = await self._exits.enter_async_context(contextlib.AsyncExitStack())

            async def load(service: Service, speaker: Speaker = speaker) -> Any:
                synthesis_pb2_grpc.add_SynthesisServiceServicer_to_server(speaker, service.handlers)

                async def close() -> None:
                    pass

                return close

            own = ServerSettings(listen=f"127.0.0.{number}:{self.port}", **{"drain_seconds": 0.0, **settings})
            service = await self.exits[number].enter_async_context(running(SERVICE, own, load))
            self.services[number], self.port = service, service.port
        self.names.records[NAME] = [f"127.0.0.{number}" for number in sorted(self.speakers)]

    @property
    def target(self) -> str:
        return self.names.target(NAME, self.port)

    async def client(self, number: int, **options: Any) -> AsyncClient:
        """Which knows that so many of them serve."""
        client = await self._exits.enter_async_context(AsyncClient(self.target, **options))
        await until(lambda: len(channel_of(client)._servers.serving_replicas()) == number)
        return client

    def counts(self) -> list[int]:
        return [len(speaker.requests) for speaker in self.speakers.values()]


def channel_of(client: AsyncClient) -> SpreadChannel:
    assert isinstance(client._channel, SpreadChannel)
    return client._channel


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with contextlib.AsyncExitStack() as exits:
        yield Servers(await exits.enter_async_context(name_server()), exits)


async def test_calls_are_spread_and_a_new_server_gets_its_part(servers: Servers) -> None:
    await servers.start(2, 3)
    client = await servers.client(2)
    for speaker in servers.speakers.values():
        speaker.may_go_on.clear()
    speaking = [asyncio.create_task(client.synthesize("a").read()) for _ in range(10)]
    await until(lambda: sum(servers.counts()) == 10)
    assert servers.counts() == [5, 5]
    await servers.start(4)
    servers.speakers[4].may_go_on.clear()
    await until(lambda: len(channel_of(client)._servers.serving_replicas()) == 3)
    speaking += [asyncio.create_task(client.synthesize("a").read()) for _ in range(5)]
    await until(lambda: servers.counts() == [5, 5, 5])
    for speaker in servers.speakers.values():
        speaker.may_go_on.set()
    assert set(await asyncio.gather(*speaking)) == {WHOLE}


async def test_the_first_call_needs_no_knowledge_and_waits_for_none(servers: Servers) -> None:
    await servers.start(2)
    async with AsyncClient(servers.target) as client:
        assert await client.synthesize("a").read() == WHOLE
    async with AsyncClient(servers.target) as client:
        await client.connect()
        assert await client.voices() == []


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_stream_goes_on_at_another_server(servers: Servers, streaming: bool) -> None:
    await servers.start(2, 3)
    client = await servers.client(2)
    for speaker in servers.speakers.values():
        speaker.may_go_on.clear()
    speech = client.streaming_synthesize() if streaming else client.synthesize("a")
    if streaming:
        await speech.write("a")  # type: ignore[union-attr]
    async with speech:
        heard = (await anext(speech)).audio
        dying, other = (2, 3) if servers.speakers[2].requests else (3, 2)
        servers.speakers[other].may_go_on.set()
        await servers.exits[dying].aclose()
        # Before that it may be asked once more. The loss is only seen when the next piece is read.
        await until(lambda: len(channel_of(client)._servers.serving_replicas()) == 1)
        while (chunk := await anext(speech, None)) is not None:
            heard += chunk.audio
    assert heard == WHOLE
    # Where text arrives, a first try may still have gone to the server that ends.
    assert speech.resumed in ((1, 2) if streaming else (1,))
    assert servers.speakers[other].requests == [100]
    # New calls do not try the dead one, which its name still has.
    assert await asyncio.gather(*(client.synthesize("a").read() for _ in range(8))) == [WHOLE] * 8


async def test_a_request_that_no_sound_came_of_is_sent_to_another_server(servers: Servers) -> None:
    """Its server has died, and the client does not know it yet."""
    await servers.start(2, 3)
    client = await servers.client(2)
    for service in servers.services.values():
        await service.set_serving(True)
    dead = channel_of(client)._servers.replicas[0]
    await servers.exits[2].aclose()
    for _ in range(6):
        channel_of(client)._servers.set_serving(dead, serving=True)
        dead.calls = -1  # the least busy
        async with client.synthesize("a") as speech:
            assert await speech.read() == WHOLE
        channel_of(client)._servers.set_serving(dead, serving=True)
        assert await client.voices() == []
    assert servers.counts() == [0, 6]


async def test_a_full_server_is_passed_over_and_all_full_is_an_error_at_once(servers: Servers) -> None:
    await servers.start(2, 3)
    client = await servers.client(2)
    servers.speakers[2].full = True
    for _ in range(8):
        assert await client.synthesize("a").read() == WHOLE
        assert await client.voices() == []
    assert servers.counts()[0] <= 8
    servers.speakers[3].full = True
    before = sum(servers.counts())
    with pytest.raises(Overloaded, match="16 requests are under way") as caught:
        await client.synthesize("a").read()
    assert caught.value.retry_after == pytest.approx(0.4)
    assert sum(servers.counts()) - before <= 2


async def test_a_voice_that_the_lost_server_deleted_is_deleted(servers: Servers) -> None:
    await servers.start(2, 3)
    client = await servers.client(2)
    with pytest.raises(NotFound):
        await client.delete_voice("anna")
    servers.speakers[2].dies_deleting = True
    channel_of(client)._servers.replicas[1].calls = 1
    await client.delete_voice("anna")


async def test_no_server_is_an_error_at_once(servers: Servers) -> None:
    await servers.start(2)
    client = await servers.client(1)
    await servers.exits[2].aclose()
    with pytest.raises(Unavailable):
        await client.synthesize("a").read()
    servers.names.records.clear()
    async with AsyncClient(servers.target) as other:
        with pytest.raises(Unavailable):
            await other.synthesize("a").read()
    with pytest.raises(SettingsError, match="is not dns:///name:port"):
        AsyncClient("dns:///speech.test")
    for several in ("a:1,", "a:1,,b:2"):
        with pytest.raises(SettingsError, match="has an empty target"):
            AsyncClient(several)


async def test_tls_is_checked_against_the_name(servers: Servers, tmp_path: Path) -> None:
    authority = Authority()
    folder = Folder(tmp_path / "server").put(authority.issue((NAME,)), authority.pem)
    caller = Folder(tmp_path / "caller").put(authority.issue(), authority.pem)
    await servers.start(2, 3, **served(folder))
    client = await servers.client(2, tls=tls_of(caller))
    assert await asyncio.gather(*(client.synthesize("a").read() for _ in range(4))) == [WHOLE] * 4
    assert servers.counts() == [2, 2]
    folder.put(authority.issue(("127.0.0.2",)), authority.pem)
    async with AsyncClient(servers.target, tls=tls_of(caller)) as refused:
        with pytest.raises(Unavailable):
            await refused.synthesize("a").read()


async def test_a_gateway_speaks_through_all_and_loses_nothing(servers: Servers) -> None:
    await servers.start(2, 3, 4)
    async with gateway(servers.target) as served_gateway:
        body = {"model": "tts-1", "input": "a", "voice": "anna", "response_format": "pcm"}

        async def speak() -> tuple[int, bytes]:
            response = await served_gateway.http.post("/v1/audio/speech", json=body)
            return response.status_code, response.content

        ready = await served_gateway.http.get("/readyz")
        assert ready.status_code == 200
        assert await asyncio.gather(*(speak() for _ in range(12))) == [(200, WHOLE)] * 12
        async with asyncio.timeout(20):
            while not min(servers.counts()):  # a connection may have come up behind the first calls
                assert await asyncio.gather(*(speak() for _ in range(3))) == [(200, WHOLE)] * 3
        for speaker in servers.speakers.values():
            speaker.may_go_on.clear()
        speaking = [asyncio.create_task(speak()) for _ in range(12)]
        await until(lambda: sum(speaker.inside for speaker in servers.speakers.values()) == 12)
        assert servers.speakers[2].inside
        closing = asyncio.create_task(servers.exits[2].aclose())
        for speaker in servers.speakers.values():
            speaker.may_go_on.set()
        assert await asyncio.gather(*speaking) == [(200, WHOLE)] * 12
        await closing
        assert await asyncio.gather(*(speak() for _ in range(12))) == [(200, WHOLE)] * 12
        ready = await served_gateway.http.get("/readyz")
        assert ready.status_code == 200


async def test_a_full_server_is_not_asked_again_over_its_other_connections(servers: Servers) -> None:
    await servers.start(2)
    servers.speakers[2].full = True
    client = await servers.client(4, connections=4)
    with pytest.raises(Overloaded, match="16 requests are under way"):
        await client.synthesize("a").read()
    assert servers.counts() == [1]
