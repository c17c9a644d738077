"""A caller of the scripted stack, and hooks that make a stage fail."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest

from cosyserve.v1 import synthesis_pb2
from tests.stacks.scripted_stages import Stack

TEXT = "one sentence after another"
HOOKS = {"frontend": "analyze", "llm": "generate", "token2wav": "decode"}
"""The hook of a stage's script in the middle of its work."""
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


async def unary(running: Stack, text: str = TEXT, **fields: Any) -> synthesis_pb2.SynthesizeUnaryResponse:
    fields = {"sentence_pause_milliseconds": 0, **fields}
    return await running.stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text=text, **fields), timeout=20)


async def refusal(answer: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """The status of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value


async def status_of(running: Stack, text: str = TEXT, **fields: Any) -> grpc.aio.AioRpcError:
    return await refusal(speak(running, text, **fields))


def hook(running: Stack, stage: str, behaviour: Any) -> None:
    """Let every replica of a stage behave like this in the middle of its work."""
    for script in running.scripts[stage]:
        setattr(script, HOOKS[stage], behaviour)


def hold_back(running: Stack) -> asyncio.Event:
    """No sound is made before the event is set."""
    gate = asyncio.Event()

    async def wait(*_: Any) -> None:
        await gate.wait()

    hook(running, "token2wav", wait)
    return gate


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
