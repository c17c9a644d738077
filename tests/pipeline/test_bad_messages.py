"""What is no message, what is too long for a status, and callers who hang up: clear statuses, and
nothing in the log that is no failure.
"""

import asyncio
import logging
import random
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from cosyserve.errors import LONGEST_MESSAGE, InvalidRequest
from cosyserve.foreign import cosyvoice_pb2, riva_tts_pb2
from cosyserve.v1 import frontend_pb2, info_pb2, llm_pb2, synthesis_pb2, token2wav_pb2
from tests.pipeline.calling import TEXT, all_idle, hook, speak
from tests.stacks.calls import all_of, refusal
from tests.stacks.every_request import methods
from tests.stacks.scripted_stages import Stack

NO_MESSAGE = b"\xff\xff\xff caller's words"
FILES = {
    "orchestrator": (synthesis_pb2, info_pb2, riva_tts_pb2, cosyvoice_pb2, health_pb2, reflection_pb2),
    "frontend": (frontend_pb2, info_pb2),
    "llm": (llm_pb2,),
    "token2wav": (token2wav_pb2,),
}


async def _refusal(channel: grpc.aio.Channel, method: Any, said: str) -> grpc.aio.AioRpcError:
    shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, shape)(f"/{method.containing_service.full_name}/{method.name}")
    answer = call(iter([NO_MESSAGE]) if method.client_streaming else NO_MESSAGE, timeout=10)
    return await refusal(all_of(answer) if method.server_streaming else answer, grpc.StatusCode.INVALID_ARGUMENT, said)


async def test_what_is_no_message_is_refused_by_every_method_without_a_stack_trace(
    running: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0
    ports = {
        "orchestrator": running.orchestrator.port,
        **{name: found[0].port for name, found in running.services.items()},
    }
    for name, files in FILES.items():
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[name]}") as channel:
            for method in methods([service for file in files for service in file.DESCRIPTOR.services_by_name.values()]):
                error = await _refusal(channel, method, "cannot be decoded as one of this method")
                assert "words" not in (error.details() or "")
                asked += 1
    assert asked > 30
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.start(max_streams=64)
async def test_callers_who_hang_up_at_any_moment_leave_no_error_in_the_log(
    running: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(5)
    stub = running.stub

    async def hang_up(number: int) -> None:
        async def fragments() -> Any:
            yield synthesis_pb2.StreamingSynthesizeRequest(setup=synthesis_pb2.StreamingSynthesizeSetup())
            for word in TEXT.split():
                yield synthesis_pb2.StreamingSynthesizeRequest(text=f"{word} ")

        if number % 3 == 0:
            call: Any = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT * 5))
        elif number % 3 == 1:
            call = stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text=TEXT * 5))
        else:
            call = stub.StreamingSynthesize(fragments())
        await asyncio.sleep(dice.uniform(0.0, 0.1))
        call.cancel()

    for _ in range(4):
        await asyncio.gather(*(hang_up(number) for number in range(15)))
    await all_idle(running)
    assert [
        f"{record.getMessage()} {record.exc_text}" for record in caplog.records if record.levelno >= logging.ERROR
    ] == []


@pytest.mark.parametrize("field", ["language_code", "engine"])
async def test_a_value_of_a_megabyte_is_cut_where_the_status_names_it(running: Stack, field: str) -> None:
    changes: dict[str, Any] = {field: "de'" * 350_000}
    error = await refusal(speak(running, **changes))
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), error
    assert len(error.details() or "") < LONGEST_MESSAGE + 100


@pytest.mark.parametrize(
    "value", ["x" * 1_000_000, "it's " * 200_000, "\"'" * 500_000, "\\" * 300_000, "\x00\n" * 200_000]
)
def test_a_quoted_value_is_cut_at_256_characters_and_what_stands_behind_it_stays(value: str) -> None:
    message = InvalidRequest(f"language_code is {value!r}; expected a tag").message
    assert len(message) < 1_200
    assert message.startswith(f"language_code is {repr(value)[:200]}")
    assert message.endswith(" characters more); expected a tag")


def test_what_is_not_quoted_is_cut_at_the_end_and_a_short_text_stays() -> None:
    assert (
        InvalidRequest("y" * 100_000).message
        == "y" * LONGEST_MESSAGE + f"… ({100_000 - LONGEST_MESSAGE} characters more)"
    )
    kept = f"text is 'short'; {'allowed ' * 40}"
    assert InvalidRequest(kept).message == kept


@pytest.mark.parametrize("name", ["frontend", "llm", "token2wav"])
@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]
)
@pytest.mark.start(attempts=2, recovery_seconds=0.2)
async def test_no_status_names_the_address_of_a_stage_and_the_log_does(
    running: Stack, name: str, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(context: Any, *_: Any) -> None:
        await context.abort(code, "so it is")

    address = f"127.0.0.1:{running.services[name][0].port}"
    hook(running, name, fail)
    error = await refusal(speak(running))
    # A stage that ends the call while it is written to may be reported as one that is gone.
    assert error.code() in (code, grpc.StatusCode.UNAVAILABLE)
    assert (error.details() or "").startswith(f"{name}: ")
    assert "127.0.0.1" not in (error.details() or "")
    if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
        assert any(address in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
