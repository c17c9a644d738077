"""A caller of the scripted stack, and hooks that make a stage fail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import pytest

from cosyserve.v1 import synthesis_pb2
from tests.stacks.calls import all_of, until
from tests.stacks.scripted_stages import Stack, expected_audio

TEXT = "one sentence after another"
HOOKS = {"frontend": "analyze", "llm": "generate", "token2wav": "decode"}
"""The hook of a stage's script in the middle of its work."""
IMPATIENT: dict[str, Any] = {"stall_seconds": 0.5, "recovery_seconds": 1.0, "attempts": 3}


async def speak(
    running: Stack, text: str = TEXT, **fields: Any
) -> tuple[bytes, list[synthesis_pb2.SynthesizeResponse]]:
    fields = {"sentence_pause_milliseconds": 0, **fields}
    responses = await all_of(running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text, **fields), timeout=20))
    return audio_of(responses), responses


async def unary(running: Stack, text: str = TEXT, **fields: Any) -> synthesis_pb2.SynthesizeUnaryResponse:
    fields = {"sentence_pause_milliseconds": 0, **fields}
    return await running.stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text=text, **fields), timeout=20)


async def spoken(running: Stack, text: str = TEXT, **fields: Any) -> list[synthesis_pb2.SynthesizeResponse]:
    """The responses to a request of which all is heard from its start sample on, without a gap."""
    audio, responses = await speak(running, text, **fields)
    assert audio == expected_audio(text)[2 * fields.get("start_sample", 0) :]
    return responses


def audio_of(responses: Iterable[synthesis_pb2.SynthesizeResponse]) -> bytes:
    return b"".join(response.audio for response in responses)


async def hang_up(running: Stack, call: Any, when: Awaitable[None]) -> None:
    """Cancel a call whose caller listens, as soon as `when` is over; everything comes to rest."""
    listening = asyncio.create_task(call.read())
    await when
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await all_idle(running)


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
    await until(lambda: any(script.active for script in running.scripts[name]))


async def all_idle(running: Stack) -> None:
    await until(lambda: not any(script.active for scripts in running.scripts.values() for script in scripts))


def once(at: int, act: Callable[[Any], Awaitable[None]]) -> Any:
    """A hook of the first call that gets to `at`; `act` is given its context."""
    done: list[bool] = []

    async def hook(context: Any, sent: int) -> None:
        if sent >= at and not done:
            done.append(True)
            await act(context)

    return hook


def abort_once(code: grpc.StatusCode, text: str, at: int) -> Any:
    """A hook that aborts the first call that gets to `at`."""

    async def abort(context: Any) -> None:
        await asyncio.sleep(0.05)
        await context.abort(code, text)

    return once(at, abort)


async def hang(*_: Any) -> None:
    await asyncio.Event().wait()


async def hang_after_some(context: Any, sent: int) -> None:
    """Ten tokens are decoded."""
    if sent >= 10 * 960:
        await hang()
