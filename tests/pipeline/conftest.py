"""What most tests of the orchestrator speak to."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.stacks.scripted_stages import Stack, stack


@pytest.fixture
async def running(start_options: dict[str, Any]) -> AsyncIterator[Stack]:
    """Scripted stages behind a real orchestrator. `@pytest.mark.start` takes the arguments of
    `stack`.
    """
    async with stack(**start_options) as found:
        yield found
