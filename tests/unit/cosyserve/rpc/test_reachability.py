"""A server that is not there is told from one that is slow."""

import socket
import time

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import Unavailable
from cosyserve.rpc.server import running
from tests.unit.cosyserve.rpc.small_service import NAME, SETTINGS, loader, one_chunk


async def test_a_server_that_is_there_is_found() -> None:
    async with (
        running(NAME, SETTINGS, loader(one_chunk)) as service,
        AsyncClient(f"127.0.0.1:{service.port}") as client,
    ):
        await client.connect()


async def test_a_closed_port_is_reported_at_once() -> None:
    begin = time.monotonic()
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(
            Unavailable, match=r"server at 127\.0\.0\.1:1: nothing can be reached there; is it running\? cosyserve up"
        ):
            await client.connect()
    assert time.monotonic() - begin < 3


async def test_a_silent_address_is_waited_for_as_long_as_is_given() -> None:
    """It takes connections and says nothing, as a server does that has no time yet: the channel
    gives up at once, `connect` does not.
    """

    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        async with AsyncClient(f"127.0.0.1:{door.getsockname()[1]}") as client:
            begin = time.monotonic()
            with pytest.raises(Unavailable, match=r"no answer within 1 s; is it running\?"):
                await client.connect(1.0)
            assert time.monotonic() - begin >= 1
            assert client._channel.get_state() is not grpc.ChannelConnectivity.READY
