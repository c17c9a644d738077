"""What most tests of the orchestrator speak to."""

from collections.abc import AsyncIterator

import pytest

from tests.stacks.scripted_stages import Stack, stack


@pytest.fixture
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Scripted stages behind a real orchestrator. `@pytest.mark.start` takes the arguments of
    `stack`.
    """
    given = request.node.get_closest_marker("start") or pytest.mark.start
    async with stack(*given.args, **given.kwargs) as found:
        yield found
