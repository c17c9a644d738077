"""When requests are due, and that no answer delays one."""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from bench.field import callers
from bench.field.answer import ANSWERED, FAILED, REFUSED
from bench.field.arrivals import Request, Schedule, schedule
from bench.field.caller import Job, called
from bench.field.loads import GRPC, HTTP, Amount, Load, groups
from bench.field.sentences import SENTENCES, texts
from bench.load.http_caller import Refused
from cosyserve.errors import Unavailable

LOAD = Load("10", HTTP, 10.0, 400, 20.0, ("a", "b", "c"))


def test_arrivals_are_poisson_and_the_same_through_every_door() -> None:
    plan = schedule(LOAD, seed=3)
    assert schedule(replace(LOAD, door=GRPC), seed=3) == plan
    assert schedule(LOAD, seed=4) != plan
    counted = [request.at for request in plan.requests if request.counted]
    gaps = [later - earlier for earlier, later in itertools.pairwise(counted)]
    # Exponential: the standard deviation is the mean; 400 gaps have both within a few per cent.
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.15)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.15)


def test_the_measured_requests_come_behind_a_warm_up_that_has_every_voice() -> None:
    plan = schedule(LOAD, seed=0)
    warm = [request for request in plan.requests if not request.counted]
    counted = [request for request in plan.requests if request.counted]
    assert {request.voice for request in warm} == set(LOAD.voices) == {request.voice for request in counted}
    assert all(request.at < plan.begin for request in warm)
    assert all(plan.begin <= request.at < plan.end for request in counted)
    assert len(counted) >= 400
    assert plan.end - plan.begin >= 20
    # Fewer requests than fit into the seconds: the seconds are measured in full.
    short = schedule(replace(LOAD, requests=1), seed=0)
    assert short.end - short.begin >= 20


@pytest.mark.parametrize(("kind", "words"), [("3", 11), ("10", 36), ("30", 110)])
def test_texts_of_a_length_are_whole_sentences_of_the_set(kind: str, words: int) -> None:
    chosen = texts(kind)
    assert len(set(chosen)) == len(chosen) > 30
    assert all(abs(len(text.split()) - words) <= 2 for text in chosen)
    assert all(text[0].isupper() and text[-1] in ".?" for text in chosen)
    assert len(texts(SENTENCES)) == 1_088


def test_the_parts_cover_every_rate_length_and_voice() -> None:
    every = {group.name: group for group in groups(Amount(), ("one", "two"))}
    assert list(every) == [
        "http-low", "http-high", "grpc-low", "grpc-high", "lengths", "voices-warm", "voices-cold",
    ]  # fmt: skip
    assert [load.rate for load in (*every["http-low"].loads, *every["http-high"].loads)] == [1, 4, 10, 20, 40, 60, 80]
    assert [load.requests for load in every["http-low"].loads] == [60, 200, 200]
    assert [load.kind for load in every["lengths"].loads] == ["3", "10", "30"]
    assert [load.voices for load in every["voices-cold"].loads] == [("one",), ("two",)]
    assert [name for name, group in every.items() if group.cold] == ["voices-cold"]


class ScriptedDoor:
    """Answers nothing before `last` has been asked for."""

    def __init__(self, last: int) -> None:
        self._last, self._asked = last, asyncio.Event()
        self.order: list[int] = []

    async def pieces(self, request: Request, spent: dict[str, float]) -> AsyncGenerator[bytes]:
        self.order.append(request.number)
        if request.number == self._last:
            self._asked.set()
        await self._asked.wait()
        if request.text == "refused":
            raise Refused("the gateway answered HTTP/1.1 429")
        if request.text == "failed":
            raise Unavailable("gone")
        yield bytes(9_600 if request.text == "speech" else 0)


def job(*said: str, closes: float = 200.0) -> Job:
    requests = tuple(Request(number, number / 100, text, "", 0, number > 0) for number, text in enumerate(said))
    return Job(time.monotonic(), 0.0, 100.0, closes, any_sample=True, requests=requests)


async def test_a_slow_answer_delays_no_request() -> None:
    # In a closed loop the second request would wait for the first answer, which waits for the last.
    door = ScriptedDoor(last=4)
    done = await called(job(*["speech"] * 5), door)
    assert door.order == [0, 1, 2, 3, 4]
    assert [answer.state for answer in done.answers] == [ANSWERED] * 5
    by_number = {answer.number: answer for answer in done.answers}
    # The time runs from the moment at which a request was due, not from its sending.
    assert all((by_number[n].first or 0.0) >= by_number[4].late + 0.01 * (4 - n) - 1e-9 for n in range(5))


async def test_refused_and_failed_requests_are_told_apart() -> None:
    done = await called(job("speech", "refused", "failed", "nothing"), ScriptedDoor(last=3))
    states = {answer.number: (answer.state, answer.reason) for answer in done.answers}
    assert states[0] == (ANSWERED, "")
    assert states[1] == (REFUSED, "the gateway answered HTTP/1.1 429")
    assert states[2] == (FAILED, "Unavailable: gone")
    assert states[3] == (FAILED, "an answer without sound")


async def test_a_load_closes_though_the_server_does_not_answer() -> None:
    done = await called(job("speech", "speech", closes=0.05), ScriptedDoor(last=2))
    assert [(one.state, one.reason) for one in done.answers] == [(FAILED, "not complete when its load closed")] * 2


async def test_a_calling_process_that_says_nothing_ends_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LEAD_SECONDS", "DRAIN_SECONDS", "_REPLY_SECONDS"):
        monkeypatch.setattr(callers, name, 0.01)
    silent = await asyncio.create_subprocess_exec(
        "sleep", "60", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        with pytest.raises(OSError, match="a calling process did not say what it heard"):
            await callers.Callers([silent]).call(Schedule((), 0.0, 0.0), any_sample=True)
    finally:
        silent.kill()
        await silent.wait()


def test_a_job_travels_as_a_line() -> None:
    sent = job("speech", "Größe")
    assert Job.read(str(sent)) == sent
    assert "\n" not in str(sent)
