"""Short forms of the soaks: nothing is lost, every process is watched, growth is seen."""

import argparse
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench import load_soak, text_soak, voices_soak
from bench.load.flat_memory import Memory, verdict
from bench.parts.part import ResultsFile

DEMO = Path("models/demo")
SERVICES = {"frontend.0", "llm.0", "token2wav.0", "orchestrator.0"}


async def test_a_short_soak_under_load_watches_every_process(tmp_path: Path) -> None:
    """Who hangs up is counted, nothing fails, and what is heard out is what its request names."""
    options = argparse.Namespace(
        model=DEMO, device=None, set=[], streams=3, minutes=0.05, connections=2, seeds=1, seed=3
    )
    await load_soak.soak(options, results := ResultsFile(tmp_path / "soak.json"))
    assert results["heard_out"] + results["hung_up"] >= 3
    assert set(results["samples"]) >= SERVICES
    assert all(megabytes > 10 for points in results["samples"].values() for _, megabytes in points)
    assert results["failed"] == 0
    assert not [wrong for wrong in verdict(results) if wrong.startswith("failed")]
    assert ResultsFile(tmp_path / "soak.json")["seconds"] == results["seconds"]


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_a_short_text_soak_loses_nothing(mode: str) -> None:
    """A few minutes' worth of text, streamed: all of it is spoken."""
    result = await text_soak.soak(DEMO, characters=3_000, mode=mode)  # type: ignore[arg-type]
    assert result.characters >= 3_000
    # In token mode a sentence is as long as the model takes, in sentence mode as its text.
    assert 55 <= result.sentences <= 75
    assert result.audio_seconds > 180
    assert set(result.memory.slopes) == SERVICES


async def test_sixty_operations_from_eight_clients() -> None:
    """Voices from many hands stay whole."""
    result = await voices_soak.soak(DEMO, 60, 8, seed=2)
    assert (result.faults, result.left) == ([], [])
    assert sum(result.done.values()) == 60
    assert result.done["create ok"] > 5


@pytest.mark.parametrize(("slope", "flat"), [(0.9, True), (1.1, False)])
def test_growth_is_seen(slope: float, flat: bool) -> None:
    assert Memory({"llm.0": 0.2, "token2wav.0": slope}, {}).flat == flat


def test_the_slope_is_per_hundred_requests() -> None:
    memory = Memory.of({"grows": [(0, 50.0), (50, 51.0), (100, 52.0)], "flat": [(0, 9.0), (50, 9.0), (100, 9.0)]}, 100)
    assert memory.slopes == {"grows": pytest.approx(2.0), "flat": pytest.approx(0.0)}
    assert memory.text("100 requests").splitlines()[0].split()[1:6] == ["50.0", "MB", "->", "52.0", "MB"]


async def test_a_request_that_is_heard_otherwise_than_before_is_an_error() -> None:
    answers = iter((b"one", b"one", b"other"))

    class Client:
        @contextlib.asynccontextmanager
        async def synthesize(self, text: str, seed: int) -> AsyncIterator["Client"]:
            yield self

        async def read(self) -> bytes:
            return next(answers)

    tally, patient = load_soak.Tally(), random.Random(1)
    patient.random = lambda: 1.0  # type: ignore[method-assign]
    for number in (0, 8, 16):
        await load_soak.ask(Client(), number, 1, patient, tally)  # type: ignore[arg-type]
    assert (tally.heard_out, tally.hung_up) == (2, 0)
    assert list(tally.errors) == [f"seed 0 of {load_soak.TEXTS[0]!r} was heard otherwise before"]
