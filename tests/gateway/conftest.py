"""What most tests of the gateway speak to."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.stacks.gateway_server import Gateway, scripted_gateway
from tests.stacks.scripted_stages import Stack


@pytest.fixture
def query(start_options: dict[str, Any]) -> dict[str, Any]:
    """Of the address of a WebSocket: what `@pytest.mark.start(query=...)` gives."""
    return start_options.pop("query", {})  # type: ignore[no-any-return]


@pytest.fixture
async def _started(start_options: dict[str, Any], query: dict[str, Any]) -> AsyncIterator[tuple[Gateway, Stack]]:
    async with scripted_gateway(**start_options) as started:
        yield started


@pytest.fixture
def served(_started: tuple[Gateway, Stack]) -> Gateway:
    """In front of `running`. `@pytest.mark.start` takes the arguments of `scripted_gateway`."""
    return _started[0]


@pytest.fixture
def running(_started: tuple[Gateway, Stack]) -> Stack:
    """Scripted stages behind a real orchestrator."""
    return _started[1]
