"""The time a request may take: the caller's deadline, or ours when that is sooner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from cosyserve.errors import DeadlineExceeded


@contextlib.asynccontextmanager
async def within(longest_seconds: float, callers_seconds: float | None) -> AsyncIterator[None]:
    """Raise DeadlineExceeded when the block takes longer than both allow."""
    seconds = longest_seconds if callers_seconds is None else min(longest_seconds, callers_seconds)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"the request took longer than {seconds:.1f} s") from error
