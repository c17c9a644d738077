"""First messages are received in turn: no more at once than the limit, and none that lingers keeps others out."""

import asyncio
import contextlib

import pytest

from cosyserve import intake
from cosyserve.errors import DeadlineExceeded, Overloaded
from cosyserve.intake import Intake, Turn


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "UNDISTURBED_SECONDS", 0.2)


async def linger(gate: Intake) -> Turn:
    """A call that begins to send, and never ends by itself."""
    taken: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with gate.turn() as turn:
            taken.set_result(turn)
            await turn.lost.wait()

    holding.append(asyncio.create_task(hold()))
    return await taken


holding: list["asyncio.Task[None]"] = []


async def test_never_more_at_once_than_the_limit() -> None:
    gate, most = Intake(3, 5.0), 0

    async def call() -> None:
        nonlocal most
        async with gate.turn():
            most = max(most, gate.receiving)
            await asyncio.sleep(0.001)

    await asyncio.gather(*(call() for _ in range(50)))
    assert (most, gate.receiving) == (3, 0)


async def test_a_call_that_lingers_loses_its_turn_when_another_one_waits() -> None:
    gate = Intake(2, 5.0)
    first, second = await linger(gate), await linger(gate)
    await asyncio.sleep(0.3)
    assert not first.lost.is_set()  # as long as no other call waits
    async with asyncio.timeout(0.1), gate.turn():
        assert first.lost.is_set()
        assert not second.lost.is_set()
        assert gate.receiving == 2


async def test_a_call_that_has_just_begun_is_left_alone() -> None:
    gate = Intake(1, 5.0)
    turn = await linger(gate)
    waiting = asyncio.create_task(linger(gate))
    await asyncio.sleep(0.05)
    assert not turn.lost.is_set()
    async with asyncio.timeout(1):
        await waiting
    assert turn.lost.is_set()


async def test_the_call_that_came_last_goes_first() -> None:
    gate = Intake(1, 5.0)
    await linger(gate)
    order: list[int] = []

    async def call(number: int) -> None:
        async with gate.turn():
            order.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(3)]
    await asyncio.gather(*calls)
    assert order == [2, 1, 0]


async def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "UNDISTURBED_SECONDS", 10.0)
    gate = Intake(1, 0.1)
    async with gate.turn():
        with pytest.raises(DeadlineExceeded, match=r"not read in 0\.1 s"):
            async with gate.turn():
                pass
    async with gate.turn():
        assert gate.receiving == 1


async def test_the_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_MOST_WAITING", 1)
    gate = Intake(1, 5.0)
    async with gate.turn():
        waiting = asyncio.create_task(linger(gate))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded, match="1 calls wait"):
            async with gate.turn():
                pass
    await waiting


async def test_a_caller_that_hangs_up_while_waiting_leaves_nothing() -> None:
    gate = Intake(1, 5.0)
    async with gate.turn():
        waiting = asyncio.create_task(linger(gate))
        await asyncio.sleep(0.01)
        waiting.cancel()
        holding[-1].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await asyncio.gather(holding[-1], return_exceptions=True)
    async with asyncio.timeout(0.1), gate.turn():
        assert gate.receiving == 1
