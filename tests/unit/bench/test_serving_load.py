"""The load generator: what its player hears as a gap, who asks when, what the report makes of it,
and sentences of a length that is asked for.
"""

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import serving
from bench.load.stack import TEXTS
from bench.reports.plots import plot
from bench.reports.serving_report import Level, level, read_json, row, write_json
from cosyserve.client import Encoding
from cosyserve.client.types import STAGES, Header, Summary
from cosyserve.load.measurement import Outcome, Refusal, closed_loop, poisson
from cosyserve.load.player import Heard, Player, Stall
from cosyserve.model_directory import ModelDirectory
from services.llm.generation.config import read_config
from tests.stacks.up_process import DEMO, TINY

NONE = dict.fromkeys(STAGES, 0.0)
HEADER = Header(7, "demo", Encoding.LINEAR16, 24_000, "continuous", "")


def heard(first: float, gaps: int = 0, stalls: float = 0.0) -> Heard:
    summary = Summary(2.0, 100.0, 0.1, 1, 50, 0, False, {**NONE, "flow": 20.0}, NONE)
    return Heard(first, 1.0, 2.0, HEADER, summary, dry=(Stall(1, 0.5, stalls),) * gaps)


@pytest.mark.parametrize(
    ("arrivals", "gaps", "stalls"),
    [
        ((0.2, 0.3, 1.1, 2.19), 0, 0.0),
        # Dry at 1.5, at 3.0 plus the second that came at 2.5.
        ((0.5, 2.0, 2.5, 4.25), 2, 0.5 + 0.25),
    ],
)
def test_a_player_that_runs_dry_stands_still_until_more_comes(
    arrivals: tuple[float, ...], gaps: int, stalls: float
) -> None:
    player = Player()
    for now in arrivals:
        player.hear(now, 1.0)
    assert (player.first_sound, player.gaps, player.audio) == (arrivals[0], gaps, 4.0)
    assert player.stalls == pytest.approx(stalls)


class Asked:
    """Counts requests that take `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, time.monotonic()
        self.numbers, self.begun = list[int](), list[float]()
        self.under_way = self.most = 0

    async def ask(self, number: int) -> None:
        self.numbers.append(number)
        self.begun.append(time.monotonic() - self.began)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.seconds)
        self.under_way -= 1


async def test_a_closed_loop_has_as_many_under_way_as_it_has_streams() -> None:
    asked = Asked(0.01)
    assert await closed_loop(asked.ask, 3, 0.2, first=10) == len(asked.numbers)
    assert (asked.most, asked.under_way) == (3, 0)
    assert asked.numbers == list(range(10, 10 + len(asked.numbers)))


async def test_listeners_begin_one_after_the_other() -> None:
    asked = Asked(0.8)
    await closed_loop(asked.ask, 4, 0.5, spread=0.2)
    assert len(asked.begun) >= 4
    # A busy machine makes it later, nothing makes it sooner.
    assert all(at > 0.05 * place - 0.01 for place, at in enumerate(asked.begun[:4]))


async def test_poisson_arrivals_do_not_wait_for_each_other() -> None:
    asked = Asked(0.3)
    assert 25 < await poisson(asked.ask, 100.0, 0.5, seed=1) < 80
    assert asked.most > 10
    assert asked.under_way == 0
    assert await poisson(asked.ask, 100.0, 0.0, seed=1, least=3) == 3


def test_a_player_goes_on_when_all_has_arrived() -> None:
    answers = (heard(0.5), heard(0.5, 1, 0.25), replace(heard(0.5), end=9.0))
    assert [answer.left for answer in answers] == [pytest.approx(1.5), pytest.approx(1.75), 0.0]


async def test_a_search_ends_where_too_many_hear_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured: list[tuple[str, int]] = []

    async def measure(askers: object, arrivals: str, streams: int, seconds: float) -> Level:
        measured.append((arrivals, streams))
        gaps = [heard(0.1, gaps=int(streams > 32 and number % 2)) for number in range(10)]
        return level(arrivals, streams, Outcome(gaps, seconds=1.0), None)

    monkeypatch.setattr(serving, "measure", measure)
    options = argparse.Namespace(
        server="127.0.0.1:1", arrivals=["listening", "closed"], streams=[16, 32, 64, 128], seconds=1.0, connections=1,
        voice="", sentence_seconds=None, callers=1,
        json=tmp_path / "found.json", stop_below=0.95,
    )  # fmt: skip
    wanted = [(arrivals, streams) for arrivals in ("listening", "closed") for streams in (16, 32, 64)]
    await serving.run(options)
    assert measured == wanted
    await serving.run(options)
    assert measured == wanted
    options.callers = 2
    with pytest.raises(ValueError, match=r"found.json holds loads of --callers 1, this is --callers 2"):
        await serving.run(options)
    options.callers = 17
    with pytest.raises(ValueError, match="17 callers cannot share a load of 16"):
        await serving.run(options)


def test_a_level_counts_who_was_refused_and_who_stood_still(tmp_path: Path) -> None:
    answers = [heard(0.1), heard(0.3, 1, 0.5), heard(0.2), heard(0.2)]
    one = level("closed", 4, Outcome(answers, [Refusal(0.1, 1.0)] * 2, ["broken"], seconds=4.0), None)
    assert (one.requests, one.refused, one.failed) == (7, 2, 1)
    assert (one.gap_free, one.stall_seconds, one.audio_per_second, one.stages["flow"]) == (0.75, 0.5, 2.0, 20.0)
    assert one.p50 == pytest.approx(200.0)
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


def test_texts_take_so_many_seconds_on_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [40 + 5 * at for at in range(len(TEXTS))]
    monkeypatch.setattr(serving, "text_ids", lambda model, texts: [(0,) * count for count in counts])
    made = serving.sentences_of(DEMO, 10.0, tmp_path)
    lengths = read_config(ModelDirectory(made)).lengths
    shortest, longest = ([bound(count) for count in counts] for bound in (lengths.shortest, lengths.longest))
    assert shortest == longest
    assert sum(longest) / len(longest) == pytest.approx(250, abs=1)
    assert {each.name for each in made.iterdir()} == {each.name for each in DEMO.iterdir()}
    assert (made / "flow.pt").samefile(DEMO / "flow.pt")


def test_a_yaml_without_ratios_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "text_ids", lambda model, texts: [(0,)])
    with pytest.raises(ValueError, match="yaml has 0 of min_token_text_ratio and max_token_text_ratio"):
        serving.sentences_of(TINY, 10.0, tmp_path)
