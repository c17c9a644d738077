"""A read of a caller's message is never cancelled: it ends with the call, and its error is
not reported to a caller that has left.
"""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from cosyserve.errors import DeadlineExceeded, InvalidRequest
from services.orchestrator.speech.arriving_text import Flush, TextReplayBuffer, Waiting, listen


class Caller:
    """Writes one fragment, then is read until `ended` is set, as a call is; the read fails then."""

    def __init__(self) -> None:
        self.ended, self.over = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def parts(self) -> AsyncIterator[str | Flush]:
        yield "text"
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.over.set()
        raise InvalidRequest("the last message was none")


@pytest.fixture
async def forgotten() -> list[str]:
    """What asyncio says of errors that were not retrieved."""
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    return said


@pytest.mark.parametrize("idle", [True, False])
async def test_the_read_goes_on_when_it_is_waited_for_no_longer(idle: bool, forgotten: list[str]) -> None:
    """Because the caller was silent for too long, or because the request ended in another way."""
    caller = Caller()
    waiting = Waiting(delay_seconds=None, idle_seconds=0.05 if idle else 60.0)
    listening = asyncio.create_task(listen(caller.parts(), TextReplayBuffer(100), waiting, 100))
    await asyncio.sleep(0.02)
    if not idle:
        listening.cancel()
    with pytest.raises(DeadlineExceeded if idle else asyncio.CancelledError):
        await listening
    await asyncio.sleep(0.05)
    assert not caller.over.is_set()
    caller.ended.set()
    await asyncio.wait_for(caller.over.wait(), 1)
    await asyncio.sleep(0.05)
    gc.collect()
    assert not caller.cancelled
    assert forgotten == []
