"""`cosyserve up` with the gateway: it answers over HTTP, is restarted when it dies or freezes, and
drains with the rest.
"""

import json
import re
import signal
import time
import urllib.error
import urllib.request

import psutil

from tests.stacks.up_process import Up


def address_of(up: Up) -> str:
    return re.search(r"http://(\S+)", up.line_with("ready: "))[1]


def gateway_of(up: Up) -> psutil.Process:
    return next(child for child in psutil.Process(up.process.pid).children() if "services.gateway" in child.cmdline())


def spoken(address: str) -> bytes:
    body = json.dumps({"input": "It works.", "seed": 1, "response_format": "pcm"}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{address}/v1/audio/speech", body, headers={"content-type": "application/json"}),
        timeout=20,
    ) as answer:
        content: bytes = answer.read()
        return content


def spoken_again(address: str) -> bytes:
    """As soon as somebody answers."""
    until = time.monotonic() + 40
    while True:
        try:
            return spoken(address)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_the_gateway_serves_and_survives() -> None:
    up = Up("--http", "127.0.0.1:0")
    try:
        address = address_of(up)
        before = spoken(address)
        assert before
        gateway_of(up).send_signal(signal.SIGKILL)
        up.line_with("gateway.0 was killed by SIGKILL")
        assert spoken_again(address) == before
        # A process that is still loading is not judged.
        until = time.monotonic() + 20
        while sum("gateway.0 serving" in line for line in up.lines) < 2:
            assert time.monotonic() < until, up.lines
            time.sleep(0.05)
        gateway_of(up).send_signal(signal.SIGSTOP)
        up.line_with("gateway.0 gave no health answer for 8 s and is killed", 30)
        assert spoken_again(address) == before
    finally:
        assert up.end() == 0, up.lines


def test_an_address_in_use_names_the_option() -> None:
    up = Up("--http", "127.0.0.1:0")
    try:
        other = Up("--http", address_of(up))
        assert other.process.wait(60) == 2
        assert other.end() == 2
        assert any("--http chooses another address" in line for line in other.lines)
    finally:
        up.end()
