"""One line of the orchestrator's log for each request that speaks."""

import asyncio
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from cosyserve.rpc.interceptors import EdgeInterceptor
from cosyserve.v1 import synthesis_pb2
from services.orchestrator.request_log import logged
from tests.pipeline.calling import busy, hang, hang_up, speak
from tests.stacks.calls import all_of, refusal, until
from tests.stacks.scripted_stages import Stack

LINE = re.compile(
    r"request (?P<id>\S+) (?P<method>\w+) voice=(?P<voice>\S+) audio=(?P<audio>[\d.]+) s "
    r"first_byte=(?P<byte>\d+) ms first_audible=(?P<audible>\d+) ms status=(?P<status>\w+)"
)
Lines = Callable[[], list[dict[str, str]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What was logged of requests."""
    caplog.set_level(logging.INFO)

    def found() -> list[dict[str, str]]:
        return [match.groupdict() for record in caplog.records if (match := LINE.fullmatch(record.getMessage()))]

    return found


async def test_a_request_that_was_spoken(running: Stack, lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    audio, responses = await speak(running, "confidential words")
    request = synthesis_pb2.SynthesizeRequest(text="more", sentence_pause_milliseconds=0)
    assert await all_of(running.stub.Synthesize(request, metadata=(("x-request-id", "order-7"),)))
    unary = await running.stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text="whole"))
    first, second, third = lines()
    summary = responses[-1].summary
    assert (first["method"], first["voice"], first["status"]) == ("Synthesize", "anna", "OK")
    assert first["audio"] == f"{len(audio) / 48_000:.2f}"
    assert int(first["byte"]) == round(summary.first_sound_milliseconds)
    assert int(first["audible"]) == round(summary.first_audible_milliseconds)
    assert re.fullmatch(r"[0-9a-f]{16,32}", first["id"])
    assert (second["id"], second["audio"]) == ("order-7", f"{20 * 0.04:.2f}")
    assert (third["method"], third["audio"]) == ("SynthesizeUnary", f"{len(unary.audio) / 48_000:.2f}")
    assert "confidential" not in caplog.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"speed": 9.0}, "INVALID_ARGUMENT"), ({"voice": "nobody\nrequest"}, "NOT_FOUND")],
    ids=["speed", "voice"],
)
async def test_a_request_that_is_refused(running: Stack, lines: Lines, fields: dict[str, Any], status: str) -> None:
    await refusal(speak(running, "word", **fields), grpc.StatusCode[status])
    (line,) = lines()
    assert (line["voice"], line["audio"], line["byte"], line["status"]) == ("-", "0.00", "0", status)


async def test_ids_that_are_none_are_not_written(
    running: Stack, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    request = synthesis_pb2.SynthesizeRequest(text="word")
    for wrong in ("a b", "x" * 65, "a=b status=OK"):
        assert await all_of(running.stub.Synthesize(request, metadata=(("x-request-id", wrong),)))
    assert [len(line["id"]) for line in lines()] == [16, 16, 16]


async def test_a_caller_that_hangs_up(running: Stack, lines: Lines) -> None:
    running.scripts["token2wav"][0].decode = hang
    call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="word"))
    await hang_up(running, call, busy(running, "token2wav"))
    await until(lines)
    assert lines()[0]["status"] == "CANCELLED"


@pytest.mark.parametrize("known", [True, False])
async def test_a_caller_that_hangs_up_in_mid_write(lines: Lines, known: bool) -> None:
    """The write fails, possibly in a TaskGroup, and possibly before it is known that the call is
    over.
    """

    @logged
    async def method(servicer: None, request: None, context: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(
                _fails(grpc.aio.InternalError("write failed") if not known else RuntimeError("the call is over"))
            )

    context = SimpleNamespace(
        invocation_metadata=lambda: (), done=lambda: known, cancelled=lambda: known, time_remaining=lambda: None
    )
    call = EdgeInterceptor()._guard(lambda request, told: method(None, request, told), "/a/B")
    with pytest.raises(asyncio.CancelledError):
        await call(None, context)  # type: ignore[arg-type]
    assert [line["status"] for line in lines()] == ["CANCELLED"]


async def test_a_fault_of_ours_is_no_hanging_up(lines: Lines) -> None:
    @logged
    async def method(servicer: None, request: None, context: Any) -> None:
        raise RuntimeError("a bug")

    context = SimpleNamespace(invocation_metadata=lambda: (), done=lambda: False, cancelled=lambda: False)
    with pytest.raises(RuntimeError):
        await method(None, None, context)  # type: ignore[arg-type]
    assert [line["status"] for line in lines()] == ["INTERNAL"]


async def _fails(error: Exception) -> None:
    raise error


async def test_a_call_that_outlasts_the_drain(lines: Lines) -> None:
    """As the interceptor of every service ends it, out of a TaskGroup too."""

    @logged
    async def method(servicer: None, request: None, context: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(hang())
            begun.set()

    begun, edge = asyncio.Event(), EdgeInterceptor()
    context = SimpleNamespace(invocation_metadata=lambda: (), abort=_abort, time_remaining=lambda: None)
    call = asyncio.create_task(edge._guard(lambda request, told: method(None, request, told), "/a/B")(None, context))  # type: ignore[arg-type]
    await begun.wait()
    await edge.drain(0.0)
    with pytest.raises(grpc.aio.AbortError):
        await call
    assert [line["status"] for line in lines()] == ["UNAVAILABLE"]


async def _abort(code: grpc.StatusCode, *_: object, **__: object) -> None:
    assert code is grpc.StatusCode.UNAVAILABLE
    raise grpc.aio.AbortError
