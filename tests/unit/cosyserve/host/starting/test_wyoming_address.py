"""--wyoming: an address for the gateway, checked before anything is started."""

import socket

import pytest

from cosyserve.errors import SettingsError
from cosyserve.host.starting.serving import wyoming_address


def test_it_is_a_variable_of_the_gateway() -> None:
    assert wyoming_address(None, "off") == {}
    assert wyoming_address("127.0.0.1:0", "127.0.0.1:8080") == {"COSYSERVE_GATEWAY_WYOMING_LISTEN": "127.0.0.1:0"}


def test_it_needs_the_gateway() -> None:
    with pytest.raises(SettingsError, match="which --http off leaves out"):
        wyoming_address("127.0.0.1:0", "off")


def test_an_address_that_is_malformed_or_in_use_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'10200' is not an address.*--wyoming chooses another address"):
        wyoming_address("10200", "127.0.0.1:8080")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=rf"cannot listen on {address}.*--wyoming chooses another address"):
            wyoming_address(address, "127.0.0.1:8080")
