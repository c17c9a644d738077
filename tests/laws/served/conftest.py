"""Systems that speak with the bundled voice, one for the tests of a module."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tests.stacks.roster import Roster
from tests.stacks.whole_stack import WholeStack, whole_stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[WholeStack]:
    """All services in this process."""
    async with whole_stack(Path("models/demo")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack_and_roster() -> AsyncIterator[tuple[LocalDeployment, Roster]]:
    """Two processes of each stage."""
    roster, replicas = Roster(), {"frontend": 2, "token2wav": 2, "llm": 2}
    async with local_deployment(Path("models/demo"), replicas=replicas, environ={}, log=roster) as running:
        yield running, roster
