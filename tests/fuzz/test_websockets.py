"""Random messages to each protocol of the gateway that holds a conversation, in any order, cut,
flooding, with hang-ups at any moment.

Whatever comes, the server answers as the protocol says, or says why it does not and ends the
connection with a code that blames the caller; it never waits for ever. Afterwards all stages are
idle, no task is left, no fault is in the log, and the next caller is served.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
from hypothesis import Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.fuzz.dialects import elevenlabs, jambonz, own, vllm_omni, wyoming
from tests.fuzz.dialects.dialect import Dialect, Form, Oracle
from tests.fuzz.dialects.odd_values import Fields, broken_json, with_huge
from tests.fuzz.gateway_thread import GatewayThread, gateway_thread
from tests.fuzz.strategies import INPUTS, LIMITS
from tests.fuzz.transports import SECONDS, Ended, Transport, WebSocket, WyomingLine

DIALECTS: dict[str, Dialect] = {
    "cosyserve": own.DIALECT,
    "elevenlabs-stream-input": elevenlabs.STREAM_INPUT,
    "elevenlabs-multi-stream-input": elevenlabs.MULTI_STREAM_INPUT,
    "vllm-omni": vllm_omni.DIALECT,
    "jambonz": jambonz.DIALECT,
    "wyoming": wyoming.DIALECT,
}
STEPS = 12
# Not simplified: each attempt at a hang takes its time.
ROUND = settings(LIMITS, stateful_step_count=STEPS, phases=[Phase.generate])
MANY = "FUZZ_INPUTS" in os.environ
EXAMPLES = max(1, INPUTS // STEPS) if MANY else 2
FLOOD = 150


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayThread]:
    with gateway_thread() as running:
        yield running


class Caller(RuleBasedStateMachine):
    """One connection after the other."""

    server: ClassVar[GatewayThread]
    dialect: ClassVar[Dialect]

    @initialize(data=st.data(), pace=st.sampled_from((0.0, 0.0, 0.002)))
    def begin(self, data: st.DataObject, pace: float) -> None:
        self.broken = False
        self.path = data.draw(self.dialect.paths)
        self.server.pace(pace)
        self.line: Transport | None = None
        self.oracle: Oracle = self.dialect.oracle(self.path)

    def _open(self) -> Transport:
        """Another one if the server has ended the one before: which rules may come next must not
        depend on its time.
        """
        if self.line is None:
            self.oracle = self.dialect.oracle(self.path)
            if self.dialect.is_websocket:
                self.line = WebSocket(self.server.address, self.path)
            else:
                self.line = WyomingLine(self.server.wyoming, self.path)
        return self.line

    def _send(self, messages: list[Fields], form: Form) -> None:
        for message in messages:
            line = self._open()
            self.oracle.sends(message, form)
            line.send(message)

    @rule(data=st.data(), count=st.integers(1, 5))
    def send_messages(self, data: st.DataObject, count: int) -> None:
        self._send([data.draw(self.dialect.legal) for _ in range(count)], Form.LEGAL)

    @rule(data=st.data())
    def converse(self, data: st.DataObject) -> None:
        """What callers send who mean it."""
        self._send(data.draw(self.dialect.conversation), Form.LEGAL)

    @rule(data=st.data())
    def converse_to_the_end(self, data: st.DataObject) -> None:
        conversation = data.draw(self.dialect.conversation)
        self._hang_up(lambda line: line.close())
        self._send(conversation, Form.LEGAL)
        self._finish()

    @rule(data=st.data())
    def send_refused(self, data: st.DataObject) -> None:
        self._send([data.draw(self.dialect.refused)], Form.REFUSED)

    @rule(data=st.data())
    def send_odd_values(self, data: st.DataObject) -> None:
        self._send([data.draw(with_huge(self.dialect.legal))], Form.DOUBTFUL)

    @rule(text=broken_json())
    def send_no_message(self, text: str | bytes) -> None:
        line = self._open()
        self.oracle.unframed = self.oracle.unframed or isinstance(text, bytes)
        self.oracle.sends(None, Form.REFUSED)
        line.send_text(text)

    @rule(content=st.binary(max_size=50))
    def send_binary(self, content: bytes) -> None:
        line = self._open()
        self.oracle.sends(None, Form.REFUSED)
        line.send_binary(content)

    @rule(data=st.data(), size=st.integers(1, 20))
    def send_fragments(self, data: st.DataObject, size: int) -> None:
        message, line = data.draw(self.dialect.legal), self._open()
        self.oracle.sends(message, Form.LEGAL)
        line.send_fragments(message, size)

    @rule(data=st.data(), count=st.integers(2, FLOOD))
    def flood(self, data: st.DataObject, count: int) -> None:
        few = [data.draw(self.dialect.legal) for _ in range(3)]
        self._send((few * count)[:count], Form.LEGAL)

    @rule()
    def ping(self) -> None:
        self._open().ping()

    @rule(seconds=st.sampled_from((0.0, 0.01, 0.05)))
    def listen(self, seconds: float) -> None:
        self._listen(seconds)

    @rule()
    def close(self) -> None:
        self._hang_up(lambda line: line.close())

    @rule()
    def vanish(self) -> None:
        self._hang_up(lambda line: line.vanish())

    @rule()
    def half_close(self) -> None:
        self._hang_up(lambda line: line.half_close())

    @rule(data=st.data(), size=st.integers(1, 60))
    def vanish_within_a_message(self, data: st.DataObject, size: int) -> None:
        message = data.draw(self.dialect.legal)
        self._open()
        self._hang_up(lambda line: line.vanish_within(message, size))

    def _hang_up(self, how: Callable[[Transport], None]) -> None:
        if self.line is not None:
            line, self.line = self.line, None
            how(line)
            self._check(self.server.require_rest)

    def teardown(self) -> None:
        if not hasattr(self, "line"):
            return
        try:
            if not self.broken:
                self._finish()
                self._check(self.server.require_rest)
        finally:
            if self.line is not None:
                self.line.vanish()

    def _finish(self) -> None:
        """Ask for no more, and hear all that is due."""
        self._listen(0.0)
        if self.line is None:
            return
        self._send(self.oracle.ending(), Form.LEGAL)
        sure = not (self.oracle.doomed or self.oracle.doubtful)
        event(f"{'heard to the end' if sure else 'refused'}: {self.dialect.oracle.__name__}")
        if not sure:
            self._make_it_end()
        heard, limit = self.oracle.heard, time.monotonic() + SECONDS
        while self.line is not None and not (sure and self.oracle.settled()):
            self._check(self._in_time, limit)
            self._listen(0.5, once=True)
            if heard != self.oracle.heard:
                heard, limit = self.oracle.heard, time.monotonic() + SECONDS
        self._hang_up(lambda line: line.close())

    def _make_it_end(self) -> None:
        line, certain = self._open(), self.dialect.certain_end
        if certain is None:
            self.oracle.sends(None, Form.REFUSED)
            line.send_binary(b"\0")
        else:
            self.oracle.sends(certain, Form.LEGAL)
            line.send(certain)

    def _listen(self, seconds: float, *, once: bool = False) -> None:
        """Take what has come and what comes within `seconds`; once: one message at most."""
        try:
            while self.line is not None:
                self._check(self.oracle.hears, self.line.receive(seconds))
                if once:
                    return
        except TimeoutError:
            pass
        except Ended as ended:
            line, self.line = self.line, None
            self._check(self.oracle.closed, ended.code)
            if line is not None:
                line.close()
            self._check(self.server.require_rest)

    def _in_time(self, limit: float) -> None:
        assert time.monotonic() < limit, "something that is due has not come"

    def _check(self, check: Callable[..., None], *values: object) -> None:
        try:
            check(*values)
        except AssertionError as error:
            self.broken = True
            complaint = self._complaint(str(error))
            # Once more where it failed by its time, as that may not happen again.
            print(complaint)
            raise AssertionError(complaint) from error

    def _complaint(self, complaint: str) -> str:
        newest = "\n".join(self.oracle.history)
        return f"{complaint}\nat {self.path}; the newest messages (> to the server, < from it):\n{newest}"


@pytest.mark.parametrize("name", DIALECTS)
def test_whatever_a_caller_sends(name: str, server: GatewayThread) -> None:
    machine = type(f"CallerOf_{name}", (Caller,), {"server": server, "dialect": DIALECTS[name]})
    run_state_machine_as_test(machine, settings=settings(ROUND, max_examples=EXAMPLES))
