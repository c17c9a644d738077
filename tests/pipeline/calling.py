"""A caller of the scripted stack, and hooks that make a stage fail."""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.v1 import synthesis_pb2
from tests.stacks.scripted_stages import Stack

TEXT = "one sentence after another"
IMPATIENT: dict[str, Any] = {"stall_seconds": 0.5, "recovery_seconds": 1.0, "attempts": 3}


async def speak(
    running: Stack, text: str = TEXT, **fields: Any
) -> tuple[bytes, list[synthesis_pb2.SynthesizeResponse]]:
    fields = {"sentence_pause_milliseconds": 0, **fields}
    responses = [
        response
        async for response in running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text, **fields), timeout=20)
    ]
    return b"".join(response.audio for response in responses), responses


async def status_of(running: Stack, text: str = TEXT, **fields: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await speak(running, text, **fields)
    return caught.value


async def busy(running: Stack, name: str) -> None:
    async with asyncio.timeout(10):
        while not any(script.active for script in running.scripts[name]):
            await asyncio.sleep(0.01)


async def all_idle(running: Stack) -> None:
    async with asyncio.timeout(10):
        while any(script.active for scripts in running.scripts.values() for script in scripts):
            await asyncio.sleep(0.01)


def abort_once(code: grpc.StatusCode, text: str, at: int) -> Any:
    """A hook that aborts the first call that gets to `at`."""
    done: list[bool] = []

    async def hook(context: Any, sent: int) -> None:
        if sent >= at and not done:
            done.append(True)
            await asyncio.sleep(0.05)
            await context.abort(code, text)

    return hook


async def hang(*_: Any) -> None:
    await asyncio.Event().wait()
