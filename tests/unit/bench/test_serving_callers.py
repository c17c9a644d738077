"""Several calling processes are one load: their shares, their outcomes as one, and what is said of
one that dies or stands still.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bench import serving
from bench.load import callers
from bench.load.caller import CLOSED, LISTENING, POISSON, TOGETHER, Share
from bench.load.processes import started, tell
from bench.reports.serving_report import level
from cosyserve.client import Encoding
from cosyserve.client.types import STAGES, Header, Summary
from cosyserve.errors import Overloaded
from cosyserve.load.measurement import Outcome, Refusal
from cosyserve.load.player import Heard, Stall
from cosyserve.rpc.server import running
from tests.unit.cosyserve.client.serving import SETTINGS, Door, speech_of
from tests.unit.cosyserve.rpc.small_service import NAME, loading

LOUD = b"\x00\x40" * 4800
"""A fifth of a second."""
NONE = dict.fromkeys(STAGES, 0.0)


def heard(number: int) -> Heard:
    """Each one differs from the others in every figure."""
    summary = Summary(2.0, 100.0, 0.1, 1, 50, 0, False, {**NONE, "flow": 20.0 + number}, NONE)
    header = Header(number, "demo", Encoding.LINEAR16, 24_000, "continuous", "")
    dry = (Stall(1, 0.5, 0.1 * number),) * (number % 3 == 0)
    return Heard(0.1 + 0.01 * number, 1.0 + number, 2.0 + number, header, summary, 0.2 + 0.01 * number, dry)


def test_merged_outcomes_are_those_that_one_process_counts() -> None:
    answers, refusals = [heard(number) for number in range(11)], [Refusal(0.1 * one, 1.0) for one in range(3)]
    one = Outcome(answers, refusals, ["broken", "gone"], seconds=4.0)
    parts = (
        Outcome(answers[::2], refusals[1:], ["gone"], seconds=3.5),
        Outcome([], [], [], seconds=3.0),
        Outcome(answers[1::2], refusals[:1], ["broken"], seconds=4.0),
    )
    assert level(CLOSED, 8, callers.merged(parts), None) == level(CLOSED, 8, one, None)


@pytest.mark.parametrize("arrivals", [CLOSED, POISSON, LISTENING, TOGETHER])
@pytest.mark.parametrize(("streams", "count", "each"), [(8, 4, [2, 2, 2, 2]), (7, 3, [3, 2, 2]), (5, 1, [5])])
def test_shares_are_the_load(arrivals: str, streams: int, count: int, each: list[int]) -> None:
    whole = Share(arrivals, streams, 12.0, first=1_000_000, seconds=5.0, seed=streams, spoken=3.0)
    parts = callers.shares(whole, count)
    assert [one.streams for one in parts] == each
    assert {(one.arrivals, one.start, one.seconds, one.spoken) for one in parts} == {(arrivals, 12.0, 5.0, 3.0)}
    assert len({one.seed for one in parts}) == count
    assert parts[0] == replace(whole, streams=each[0])
    begun = [[one.first + place for place in range(one.streams)] for one in parts]
    # The first requests have the texts that those of one process have, but no number twice.
    assert [number % 8 for numbers in begun for number in numbers] == [number % 8 for number in range(streams)]
    assert all(later.first - one.first > 1_000_000 for one, later in itertools.pairwise(parts))
    if arrivals == LISTENING:
        moments = sorted(one.late + 3.0 * place / one.streams for one in parts for place in range(one.streams))
        assert moments[0] == 0.0
        assert moments[-1] < 3.0
        assert max(later - sooner for sooner, later in itertools.pairwise(moments)) < 2.5 * 3.0 / streams
    assert Share.read(str(parts[-1])) == parts[-1]


class Scripted(Door):
    """Speaks a fifth of a second in a tenth; refuses every tenth request that counts."""

    def __init__(self) -> None:
        super().__init__([self._answer])
        self.peers: set[str] = set()
        self.at_once = self.most = 0

    async def _answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.peers.add(context.peer())
        if request.seed > 1_000_000 and request.seed % 10 == 9:
            raise Overloaded("full")
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for message in speech_of(request, LOUD):
            await asyncio.sleep(0.02)
            yield message
        self.at_once -= 1


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Scripted, str]]:
    door = Scripted()
    async with running(NAME, SETTINGS, loading(door)) as service:
        yield door, f"127.0.0.1:{service.port}"


async def test_two_callers_are_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers.Callers, "lead_seconds", 0.1)
    async with scripted() as (door, address), callers.callers(2, address, 1, "") as askers:
        for arrivals in (CLOSED, POISSON, LISTENING):
            door.requests.clear()
            one = await serving.measure(askers, arrivals, 5, 0.5)
            seeds = [request.seed for request in door.requests]
            assert one.requests == len(seeds) - 5  # the warm-up is not counted
            assert len(set(seeds)) == len(seeds)
            assert {seed // 10_000_000 for seed in seeds if seed % 10_000_000 < 1_000_000} == {0, 1}
            counted = [seed for seed in seeds if seed % 10_000_000 >= 1_000_000]
            assert one.refused == sum(seed % 10 == 9 for seed in counted)
            assert (one.callers, one.streams, one.failed) == (2, 5, 0)
            assert one.audio_per_second <= 0.2 * (one.requests - one.refused) / 0.5
            if arrivals == CLOSED:
                assert door.most == 5
    assert len(door.peers) == 2


async def test_a_calling_process_ends_with_the_one_that_started_it() -> None:
    async with scripted() as (door, address), started(1, "bench.load.caller", address, "1") as (process,):
        await tell(process, str(Share(CLOSED, 2, 0.0, seconds=60.0)))
        while not door.requests:
            await asyncio.sleep(0.01)
        assert process.stdin is not None
        process.stdin.close()  # as the system does with that of a process that was killed
        assert await asyncio.wait_for(process.wait(), 20) == 1


@asynccontextmanager
async def shell(script: str) -> AsyncIterator[callers.Callers]:
    """Two calling processes of which the first one only stands still."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    processes = [
        await asyncio.create_subprocess_exec("sh", "-c", line, **pipes)
        for line in ("while echo alive; do sleep 0.1; done", f"read share; {script}")
    ]
    try:
        yield callers.Callers(processes)
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.mark.parametrize("script", ["echo alive; exit 3", "exec 0<&-; exit 3"])
async def test_a_calling_process_that_dies_ends_the_load(script: str) -> None:
    async with shell(script) as askers:
        with pytest.raises(OSError, match="a calling process ended, exit code 3"):
            await asyncio.wait_for(callers.ask(askers, CLOSED, 4, 0, 60.0), 20)


async def test_a_calling_process_that_stands_still_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_SILENT_SECONDS", 0.8)
    async with shell("echo alive; exec sleep 60") as askers:
        with pytest.raises(OSError, match=r"a calling process said nothing for 0\.8 s"):
            await asyncio.wait_for(callers.ask(askers, CLOSED, 4, 0, 60.0), 20)


async def test_one_that_does_not_start_is_said() -> None:
    with pytest.raises(OSError, match="a calling process ended, exit code 1"):
        async with started(2, "bench.load.nothing"):
            pass
