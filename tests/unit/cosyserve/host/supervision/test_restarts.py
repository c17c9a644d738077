"""Restarts of a service that does not last: counted in a row, forgotten for one that has served for
a minute.
"""

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from cosyserve.host.supervision import supervisor as stack_module
from cosyserve.host.supervision.layout import ProcessSpec
from cosyserve.host.supervision.supervisor import DeploymentFailed, LocalDeployment

STEADY_SECONDS = 0.2


class FakeChild:
    """A process that loads, serves and dies, for as many seconds as `lives` says of its life; the
    last from then on.
    """

    lives: tuple[tuple[float, float], ...] = ()
    started = 0
    http = False

    def __init__(self) -> None:
        self.loads, self.serves = self.lives[min(FakeChild.started, len(self.lives) - 1)]
        FakeChild.started += 1
        self.serving = False
        self.last_lines: list[str] = []
        self.process = SimpleNamespace(pid=0, returncode=None)
        self._dead = asyncio.Event()
        self._served = asyncio.Event()

    @classmethod
    async def start(cls, *_: Any, **__: Any) -> "FakeChild":
        return cls()

    async def until_serving(self) -> None:
        await asyncio.sleep(self.loads)
        self.serving = True
        self._served.set()

    async def ended(self) -> int:
        await self._served.wait()
        await asyncio.wait((asyncio.ensure_future(asyncio.sleep(self.serves)),))
        return 1

    def send(self, number: signal.Signals) -> None:
        self.serves = 0.0


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "Child", FakeChild)
    monkeypatch.setattr(stack_module, "_STEADY_SECONDS", STEADY_SECONDS)
    monkeypatch.setattr(stack_module, "_FIRST_BACK_OFF_SECONDS", 0.001)
    monkeypatch.setattr(FakeChild, "started", 0)


async def reports_of(monkeypatch: pytest.MonkeyPatch, *lives: tuple[float, float]) -> list[str]:
    """What a stack of one such process reports until it gives up."""
    monkeypatch.setattr(FakeChild, "lives", lives)
    reports: list[str] = []
    stack = LocalDeployment([ProcessSpec("llm", 0, "127.0.0.1:1", {})], 0.0, lambda _: None, reports.append)
    await stack.start()
    try:
        with pytest.raises(DeploymentFailed, match="5 restarts did not help"):
            await asyncio.wait_for(stack.wait(), 8)
    finally:
        await stack.stop()
    return reports


async def test_one_that_loads_for_long_and_dies_at_once_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    await reports_of(monkeypatch, (1.5 * STEADY_SECONDS, 0.0))
    assert FakeChild.started == 6


async def test_one_that_has_served_for_long_has_its_restarts_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = await reports_of(monkeypatch, (0.0, 0.0), (0.0, 0.0), (0.0, 2 * STEADY_SECONDS), (0.0, 0.0))
    assert [report.partition("(restart ")[2][:1] for report in reports if "(restart " in report] == list("1212345")
