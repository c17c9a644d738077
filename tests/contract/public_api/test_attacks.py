"""A smoke of `make attack`: attacks that end soon, against all services with fake engines; and that
a broken limit is told.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cosyserve.host.supervision.supervisor import local_deployment
from tools.attack.__main__ import ATTACKS, attacked, main
from tools.attack.target import Finding, Target

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[Target]:
    async with local_deployment(Path("tests/golden/tiny"), backend="fake") as stack:
        yield Target(stack.address, next(child.pid for child in stack.children if child.name == "orchestrator"))


@pytest.mark.parametrize(
    "name", ["half-sent", "connections", "empty-streams", "empty-calls", "undecodable", "hang-ups", "never-reading"]
)
async def test_the_limit_holds(target: Target, name: str) -> None:
    finding = (await attacked(target, [name]))[name]
    assert finding.held, finding


async def test_an_attack_that_cannot_run_is_a_broken_limit(capsys: pytest.CaptureFixture[str]) -> None:
    finding = (await attacked(Target("127.0.0.1:1"), ["hang-ups"]))["hang-ups"]
    assert not finding.held
    assert capsys.readouterr().out.startswith("BROKEN hang-ups")


async def test_a_broken_limit_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"half-sent": True, "hang-ups": True}

    def pretend(name: str) -> None:
        async def attack(_: Target) -> Finding:
            return Finding("nothing", "nothing", held[name])

        monkeypatch.setitem(ATTACKS, name, attack)

    for name in held:
        pretend(name)
    given = ["--server", "127.0.0.1:1", "--only", *held]
    assert await asyncio.to_thread(main, given) == 0
    held["hang-ups"] = False
    assert await asyncio.to_thread(main, given) == 1
    assert "1 of 2 limits hold: broken are hang-ups" in capsys.readouterr().out
