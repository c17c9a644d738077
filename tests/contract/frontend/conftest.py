"""What the tests of the frontend speak to."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.frontend.settings import FrontendSettings
from tests.contract.frontend.frontend_calls import served
from tests.stacks.up_process import TINY


@pytest.fixture
def settings(start_options: dict[str, Any], tmp_path: Path) -> FrontendSettings:
    """Of the small model. `@pytest.mark.start` gives others; voices_url: a folder of the test's."""
    if start_options.get("voices_url"):
        start_options["voices_url"] = str(tmp_path / start_options["voices_url"])
    return FrontendSettings(**{"listen": "127.0.0.1:0", "model": TINY, "drain_seconds": 1} | start_options)


@pytest.fixture
async def stub(settings: FrontendSettings) -> AsyncIterator[Any]:
    async with served(settings) as stub:
        yield stub
