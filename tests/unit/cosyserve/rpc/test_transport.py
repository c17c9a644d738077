"""Channels: their options, and a server that cannot be reached."""

import re
import socket
import time

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import Unavailable
from cosyserve.rpc.transport import ANSWER_SECONDS, PING_SECONDS, channel_options, server_options
from tests.stacks.up_process import ROOT
from tests.unit.cosyserve.client.serving import Door, serving

_MADE = re.compile(r"grpc(?:\.aio)?\.(?:insecure_channel|secure_channel|server)\(")
_OWN_DEADLINES = {"cosyserve/probe.py", "cosyserve/host/supervision/child.py"}
"""They ask for the health with deadlines of their own: to those who judge a process its silence
must not look like a lost connection.
"""


def test_a_frozen_peer_is_noticed_within_eight_seconds() -> None:
    told = dict(channel_options())
    assert (
        told["grpc.keepalive_time_ms"] + told["grpc.http2.ping_timeout_ms"]
        == (PING_SECONDS + ANSWER_SECONDS) * 1000
        < 8_000
    )


def test_limits_of_a_server_are_handed_on() -> None:
    told = dict(server_options(1 << 20, 5, 7))
    names = ("grpc.max_receive_message_length", "grpc.max_allowed_incoming_connections", "grpc.max_concurrent_streams")
    assert [told[name] for name in names] == [1 << 20, 5, 7]


def test_nothing_in_the_product_makes_a_channel_or_server_of_its_own_options() -> None:
    pages = [path for folder in ("cosyserve", "services") for path in (ROOT / folder).rglob("*.py")]
    makers = {
        str(path.relative_to(ROOT)) for path in pages if _MADE.search(path.read_text(encoding="utf-8"))
    } - _OWN_DEADLINES
    assert len(makers) >= 2
    for maker in makers:
        text = (ROOT / maker).read_text(encoding="utf-8")
        assert "from cosyserve.rpc.transport import" in text, maker
        assert not re.search(r"\(\"grpc\.(?:http2|keepalive|max_)", text), maker


async def test_a_server_that_is_there_is_found() -> None:
    async with serving(Door([])) as client:
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
