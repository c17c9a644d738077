"""The load generator: what its player hears as a gap, who asks when, and what the report makes of
it.
"""

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import serving
from bench.reports.plots import plot
from bench.reports.serving_report import Level, level, read_json, row, write_json
from cosyserve.client.types import STAGES, Summary
from cosyserve.load.arrivals import closed_loop, poisson
from cosyserve.load.measurement import Outcome, Refusal
from cosyserve.load.player import Heard, Player, Stall

NONE = dict.fromkeys(STAGES, 0.0)


def heard(first: float, gaps: int = 0, stalls: float = 0.0) -> Heard:
    summary = Summary(2.0, 100.0, 0.1, 1, 50, 0, False, {**NONE, "flow": 20.0}, NONE)
    return Heard(first, 1.0, 2.0, summary, dry=(Stall(1, 0.5, stalls),) * gaps)


def test_a_player_that_is_fed_in_time_has_no_gap() -> None:
    player = Player()
    for now in (0.2, 0.3, 1.1, 2.19):
        player.hear(now, 1.0)
    assert (player.first_sound, player.gaps, player.stalls, player.audio) == (0.2, 0, 0.0, 4.0)


def test_a_player_that_runs_dry_stands_still_until_more_comes() -> None:
    player = Player()
    for now in (0.5, 2.0, 2.5, 4.25):
        player.hear(now, 1.0)
    # Dry at 1.5, at 3.0 plus the second that came at 2.5.
    assert player.gaps == 2
    assert player.stalls == pytest.approx(0.5 + 0.25)


async def test_a_closed_loop_has_as_many_under_way_as_it_has_streams() -> None:
    under_way = most = 0
    numbers = []

    async def ask(number: int) -> None:
        nonlocal under_way, most
        numbers.append(number)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1

    assert await closed_loop(ask, 3, 0.2, first=10) == len(numbers)
    assert most == 3
    assert under_way == 0
    assert numbers == list(range(10, 10 + len(numbers)))


async def test_listeners_begin_one_after_the_other() -> None:
    begun: list[float] = []

    async def ask(number: int) -> None:
        begun.append(time.monotonic() - before)
        await asyncio.sleep(0.8)

    before = time.monotonic()
    await closed_loop(ask, 4, 0.5, spread=0.2)
    assert len(begun) >= 4
    # A busy machine makes it later, nothing makes it sooner.
    assert all(at > 0.05 * place - 0.01 for place, at in enumerate(begun[:4]))


def test_a_player_goes_on_when_all_has_arrived() -> None:
    assert heard(0.5).left == pytest.approx(1.5)
    assert heard(0.5, 1, 0.25).left == pytest.approx(1.75)
    assert replace(heard(0.5), end=9.0).left == 0.0


async def test_a_search_ends_where_too_many_hear_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured: list[tuple[str, int]] = []

    async def measure(askers: object, arrivals: str, streams: int, seconds: float) -> Level:
        measured.append((arrivals, streams))
        gaps = [heard(0.1, gaps=int(streams > 32 and number % 2)) for number in range(10)]
        return level(arrivals, streams, Outcome(gaps, seconds=1.0), None)

    monkeypatch.setattr(serving, "measure", measure)
    options = argparse.Namespace(
        server="127.0.0.1:1", arrivals=["listening", "closed"], streams=[16, 32, 64, 128], seconds=1.0, connections=1,
        voice="",
        json=tmp_path / "found.json", stop_below=0.95,
    )  # fmt: skip
    wanted = [(arrivals, streams) for arrivals in ("listening", "closed") for streams in (16, 32, 64)]
    await serving.run(options)
    assert measured == wanted
    await serving.run(options)
    assert measured == wanted


async def test_poisson_arrivals_wait_for_nobody() -> None:
    under_way = most = 0

    async def ask(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.3)
        under_way -= 1

    count = await poisson(ask, 100.0, 0.5, seed=1)
    assert 25 < count < 80
    assert most > 10
    assert under_way == 0
    assert await poisson(ask, 100.0, 0.0, seed=1, least=3) == 3


def test_a_level_counts_who_was_refused_and_who_stood_still(tmp_path: Path) -> None:
    answers = [heard(0.1), heard(0.3, 1, 0.5), heard(0.2), heard(0.2)]
    one = level("closed", 4, Outcome(answers, [Refusal(0.1, 1.0)] * 2, ["broken"], seconds=4.0), None)
    assert (one.requests, one.refused, one.failed) == (7, 2, 1)
    assert one.p50 == pytest.approx(200.0)
    assert one.gap_free == 0.75
    assert one.stall_seconds == 0.5
    assert one.audio_per_second == 2.0
    assert one.stages["flow"] == 20.0
    assert "75.0%" in row(one)
    file = tmp_path / "found.json"
    assert read_json(file, "some GPU") == []
    write_json(file, "some GPU", [one])
    assert read_json(file, "some GPU") == [one]
    with pytest.raises(ValueError, match="holds figures of 'some GPU', this is 'another'"):
        read_json(file, "another")
    plot(tmp_path / "found.png", "some GPU", [one])
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no request of 2 poisson streams was answered: 1 refused, 0 failed"):
        level("poisson", 2, Outcome(refusals=[Refusal(0.1, 1.0)]), None)
