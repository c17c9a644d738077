"""A service as a child process: it ends with all that it has started, and counts as frozen when it
no longer answers.
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.host.supervision import child
from cosyserve.host.supervision.child import Child, until_silent
from cosyserve.host.supervision.layout import free_ports
from tests.stacks.scripted_server import listening

_HOLDER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; print('helper is up', flush=True); time.sleep(600)"])
time.sleep(600)
"""


@pytest.fixture
async def service(tmp_path: Path) -> Child:
    """A service that has started a process which outlives it, if it may."""
    (tmp_path / "holder.py").write_text(_HOLDER)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    up = asyncio.Event()
    service = await Child.start(
        "holder", "holder.0", "127.0.0.1:9", environ, lambda line: up.set() if "helper is up" in line else None
    )
    await up.wait()
    return service


def is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


async def test_what_a_killed_service_had_started_ends_with_it(service: Child) -> None:
    service.send(signal.SIGKILL)
    # the helper holds the output: this would wait for it
    assert await service.ended() == -signal.SIGKILL


async def test_the_parents_end_is_the_end_of_all(service: Child) -> None:
    service.process.stdin.close()
    await service.process.wait()
    while not is_empty(service.process.pid):
        await asyncio.sleep(0.01)
    await service.ended()


State = health_pb2.HealthCheckResponse


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_ASK_SECONDS", 0.2)
    monkeypatch.setattr(child, "SILENT_SECONDS", 0.8)


class Health(health_pb2_grpc.HealthServicer):
    """Answers the n-th question as `answers` says: with a state, or a status, after some seconds,
    or None for not at all; the last from then on."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = answers, 0

    async def Check(self, request: Any, context: Any) -> Any:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return State(status=State.SERVING)
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "as the test says")
        return State(status=answer)


def answering(health: Health) -> contextlib.AbstractAsyncContextManager[str]:
    return listening(health_pb2_grpc.add_HealthServicer_to_server, health)


async def test_three_questions_in_a_row_without_an_answer() -> None:
    health = Health(State.SERVING, None, None, State.NOT_SERVING, None)
    async with answering(health) as address:
        assert await asyncio.wait_for(until_silent(address, 60), 20) == "gave no health answer for 0.8 s"
    assert health.asked == 4 + 3, "two without an answer, and one that came, begin the count again"


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL]
)
async def test_a_status_that_the_process_sends_is_an_answer(code: grpc.StatusCode) -> None:
    health = Health(code)
    async with answering(health) as address:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_silent(address, 0.5), 2.0)
    assert 5 <= health.asked <= 11, "one question every 0.2 s"


async def test_a_status_that_a_process_sends_before_it_freezes_begins_the_silence() -> None:
    loop = asyncio.get_running_loop()
    async with answering(Health(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.DEADLINE_EXCEEDED, None)) as address:
        begin = loop.time()
        assert await asyncio.wait_for(until_silent(address, 60), 20) == "gave no health answer for 0.8 s"
        assert loop.time() - begin > 0.2 + 0.55


async def test_a_busy_process_that_answers_late_is_not_silent() -> None:
    """Each answer takes twice as long as the time between two questions."""
    async with answering(Health(0.4)) as address:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_silent(address, 60), 3.0)


async def standstills() -> None:
    """Four times half a second in which this process does not run."""
    for _ in range(4):
        time.sleep(0.5)  # noqa: ASYNC251 - the loop is to stand still
        await asyncio.sleep(0.01)


@pytest.fixture
def _late_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.process_health, "LATE_SECONDS", 0.2)


@pytest.mark.usefixtures("_late_early")
async def test_where_all_stood_still_nobody_is_frozen() -> None:
    """The supervisor was late itself, so the questions of that time do not count."""
    async with answering(Health(*[None] * 4, State.SERVING)) as address:
        still = asyncio.create_task(standstills())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_silent(address, 60), 2.8)
        await still


@pytest.mark.usefixtures("_late_early")
async def test_nor_is_what_is_asked_in_http() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readline()
        if asked > 4:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        still = asyncio.create_task(standstills())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_silent(address, 60, http=True), 2.8)
        await still


async def test_a_port_that_is_not_read() -> None:
    """As that of a stopped process: the kernel takes the connection."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        assert "no health answer" in await asyncio.wait_for(until_silent(f"127.0.0.1:{held.getsockname()[1]}", 60), 20)


async def test_one_that_drains_is_given_its_time() -> None:
    health = Health(State.SERVING)
    async with answering(health) as address:
        asking = asyncio.create_task(until_silent(address, 1.5))
        while not health.asked:
            await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)
    assert not asking.done()
    assert await asyncio.wait_for(asking, 20) == "has refused connections for 1.5 s"


async def test_a_port_without_a_listener_is_no_silence() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(until_silent(f"127.0.0.1:{free_ports(1)[0]}", 60), 1.5)
