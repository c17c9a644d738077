"""The soak of everything: all kinds of requests end as they should, growth is seen and drawn."""

import argparse
import dataclasses
from pathlib import Path

import pytest

from bench.parts.part import ResultsFile
from bench.whole_soak.__main__ import soak
from bench.whole_soak.samples import Held, Sample, svg
from bench.whole_soak.tally import HEARD, Tally
from bench.whole_soak.verdict import LEAST_REQUESTS, SPARE, rows, wrong

CALM = Held(megabytes=50.0, descriptors=20, threads=9, tasks=16, active=0)
PROCESSES = {"frontend.0", "llm.0", "token2wav.0", "token2wav.1", "orchestrator.0", "gateway.0"}


def sample(requests: int, **changed: float | None) -> Sample:
    held = dataclasses.replace(CALM, **changed)  # type: ignore[arg-type]
    return Sample(requests / 10, requests, {"gateway.0": held})


def growth(megabytes: float, behind: Sample, requests: int = 2_000) -> list[str]:
    """What is wrong when the memory grows by so much in 100 requests."""
    samples = [sample(at, megabytes=50 + megabytes * at / 100) for at in range(0, requests + 1, 100)]
    return wrong(rows(samples, sample(0), behind), requests, {}, [])


def test_what_is_flat_is_not_wrong() -> None:
    assert growth(0.9, sample(2_000)) == []
    assert growth(9.0, sample(2_000), LEAST_REQUESTS - 100) == [], "too few requests for a slope"


def test_growth_of_each_kind_is_seen() -> None:
    assert growth(1.1, sample(2_000)) == ["gateway.0 grows by 1.10 MB in 100 requests"]
    for name, spare in SPARE.items():
        before = getattr(CALM, name)
        assert growth(0.0, sample(2_000, **{name: before + spare})) == []
        more = before + spare + 1
        assert growth(0.0, sample(2_000, **{name: more})) == [
            f"gateway.0 has {more} {name} when idle, {before} before the load"
        ]
    assert growth(0.0, sample(2_000, tasks=None)) == ["gateway.0 exports no tasks"]


async def test_what_should_not_happen_is_counted_by_its_text() -> None:
    tally = Tally()

    async def heard() -> str:
        return HEARD

    async def lost() -> str:
        raise ConnectionError("the connection is gone")

    assert [await tally.count("kind", ask) for ask in (heard, lost, lost)] == [True, False, False]
    assert (tally.requests, tally.by_kind()) == (3, {"kind": {HEARD: 1}})
    assert wrong([], 3, tally.errors, ["llm.0"]) == [
        "llm.0 did not live to the end",
        "2 times: kind: ConnectionError: the connection is gone",
    ]


def test_every_process_is_drawn() -> None:
    drawn = svg("a & b", [sample(0), sample(100), sample(200, tasks=None)])
    assert drawn.count("gateway.0") == 4
    assert drawn.count("<polyline") == 5
    with pytest.raises(ValueError, match="nothing to draw"):
        svg("nothing", [])


async def test_seconds_of_everything(tmp_path: Path) -> None:
    """Whatever is asked for ends as it should, and every process is watched."""
    options = argparse.Namespace(
        model=Path("models/demo"), minutes=0.1, callers=6, places=4, token_milliseconds=1.0, every=1.0, seed=3
    )
    done = await soak(options, ResultsFile(tmp_path / "soak.json"))
    assert not done.tally.errors
    assert done.tally.requests > 10
    assert {row.process for row in done.rows} == {"up", *PROCESSES}
    assert all(held.tasks for one in done.samples for name, held in one.held.items() if name in PROCESSES)
