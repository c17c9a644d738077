"""What connections inherit from the socket that the gateway listens on."""

import socket

import pytest

from cosyserve.errors import SettingsError
from services.gateway.serving.listening import listening_socket


def test_no_write_waits_for_the_acknowledgement_of_the_one_before() -> None:
    """The body of an answer is a write of its own, and so is each message of a WebSocket."""
    with (
        listening_socket("listen", "127.0.0.1:0", 7.0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000


def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"wyoming_listen is '{address}', which cannot be listened on"):
            listening_socket("wyoming_listen", address, 7.0)
