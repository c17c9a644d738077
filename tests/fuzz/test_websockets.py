"""Random messages to each WebSocket of the gateway, in any order, with hang-ups at any moment.

Whatever comes, the server closes with a code that blames the caller and says why before, or goes
on; it never waits for ever, and afterwards all stages are idle and the next caller is served.
"""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, ClassVar

import httpx2
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.fuzz.dialects import DIALECTS, Dialect, broken_json, with_huge
from tests.fuzz.strategies import INPUTS, LIMITS
from tests.stacks.gateway_server import scripted_gateway
from tests.stacks.scripted_stages import Stack

SECONDS = 20.0
"""Longest wait for anything that has to come: the machine may be busy."""
STEPS = 12
# Not simplified: each attempt at a hang takes its time.
ROUND = settings(LIMITS, stateful_step_count=STEPS, phases=[Phase.generate])
EXAMPLES = max(1, INPUTS // STEPS if "FUZZ_INPUTS" in os.environ else 25)
BLAMES_CALLER = (1000, 1002, 1003, 1007, 1008, 1009, 1013)
WITHOUT_MESSAGE = (1000, 1002, 1007, 1009)
"""Closed by the protocol, or as the caller asked."""


class Server:
    """The gateway before scripted stages, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self._ready: Future[tuple[str, Stack]] = Future()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self.address, self._stack = self._ready.result(60)

    async def _serve(self) -> None:
        async with scripted_gateway() as (served, running):
            self._ready.set_result((served.address, running))
            await self._over.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()

    def require_idle(self) -> None:
        """No stage works, and another caller is answered."""
        limit = time.monotonic() + SECONDS
        scripts = [script for replicas in self._stack.scripts.values() for script in replicas]
        while any(script.active for script in scripts):
            assert time.monotonic() < limit, "a stage works on although its caller is gone"
            time.sleep(0.005)
        assert httpx2.get(f"http://{self.address}/v1/models", timeout=SECONDS).status_code == 200


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


class Caller(RuleBasedStateMachine):
    """One connection after the other."""

    server: ClassVar[Server]
    dialect: ClassVar[Dialect]

    @initialize()
    def begin(self) -> None:
        self.ws: ClientConnection | None = None
        self.errors = 0

    def _connection(self) -> ClientConnection:
        """Another one if the server has closed the one before: which rules may come next must not
        depend on its time.
        """
        if self.ws is None:
            self.errors = 0
            address = f"ws://{self.server.address}{self.dialect.path}"
            # legacy: not as a context manager; the rules close it.
            self.ws = connect(address, open_timeout=SECONDS, max_size=None, ping_interval=None, legacy=True)
        return self.ws

    @rule(data=st.data(), count=st.integers(1, 5))
    def send_messages(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            self._send(json.dumps(data.draw(self.dialect.messages)))

    @rule(data=st.data())
    def send_odd_values(self, data: st.DataObject) -> None:
        self._send(json.dumps(data.draw(with_huge(self.dialect.messages))))

    @rule(text=broken_json())
    def send_no_message(self, text: str | bytes) -> None:
        self._send(text)

    @rule(content=st.binary(max_size=50))
    def send_binary(self, content: bytes) -> None:
        self._send(bytearray(content))

    @rule(data=st.data(), size=st.integers(1, 20))
    def send_fragments(self, data: st.DataObject, size: int) -> None:
        text = json.dumps(data.draw(self.dialect.messages))
        with contextlib.suppress(ConnectionClosed):
            self._connection().send([text[at : at + size] for at in range(0, len(text), size)])

    @rule()
    def ping(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._connection().ping()

    @rule(seconds=st.sampled_from((0.0, 0.01, 0.05)))
    def listen(self, seconds: float) -> None:
        self._listen(seconds)

    @rule()
    def close(self) -> None:
        ws, self.ws = self._connection(), None
        ws.close()
        self.server.require_idle()

    @rule()
    def vanish(self) -> None:
        ws, self.ws = self._connection(), None
        ws.socket.close()
        ws.close()
        self.server.require_idle()

    def teardown(self) -> None:
        """A message that is certainly none: refused, if the connection is still there."""
        if getattr(self, "ws", None) is not None:
            if not self.dialect.is_binary_allowed:
                self._send(bytearray(b"\0"))
                limit = time.monotonic() + SECONDS
                while self.ws is not None:
                    assert time.monotonic() < limit, "a bad message has no answer"
                    self._listen(0.5)
            else:
                self.close()
        self.server.require_idle()

    def _send(self, message: str | bytes | bytearray) -> None:
        """bytes: as a text message, which may be no UTF-8. The server may have closed."""
        with contextlib.suppress(ConnectionClosed):
            self._connection().send(message, text=isinstance(message, bytes) or None)

    def _listen(self, seconds: float) -> None:
        """Take what has come and what comes within `seconds`."""
        try:
            while self.ws is not None:
                received = self.ws.recv(seconds)
                if isinstance(received, str):
                    message: dict[str, Any] = json.loads(received)
                    self.errors += self.dialect.is_error(message)
                    assert "internal" not in str(message.get("error", "")), message
        except TimeoutError:
            pass
        except ConnectionClosed as closed:
            self.ws = None
            self._require_reason(closed)
            self.server.require_idle()

    def _require_reason(self, closed: ConnectionClosed) -> None:
        assert closed.rcvd is not None, "the server hung up without a close frame"
        assert closed.rcvd.code in BLAMES_CALLER, closed
        assert self.errors or closed.rcvd.code in WITHOUT_MESSAGE, f"no reason before {closed}"


@pytest.mark.parametrize("name", DIALECTS)
def test_whatever_a_caller_sends(name: str, server: Server) -> None:
    machine = type(f"CallerOf_{name}", (Caller,), {"server": server, "dialect": DIALECTS[name]})
    run_state_machine_as_test(machine, settings=settings(ROUND, max_examples=EXAMPLES))


def test_a_broken_rule_is_a_failure(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that closes without a reason is found."""
    monkeypatch.setitem(globals(), "WITHOUT_MESSAGE", ())
    silent = Dialect(DIALECTS["cosyserve"].path, DIALECTS["cosyserve"].messages, lambda _: False)
    machine = type("CallerOfNone", (Caller,), {"server": server, "dialect": silent})
    with pytest.raises(AssertionError, match="no reason before"):
        run_state_machine_as_test(machine, settings=settings(ROUND, max_examples=20))
