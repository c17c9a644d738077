"""What `cosyserve bench` counts, against a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cosyserve.errors import InternalFault, NotFound, Overloaded
from cosyserve.load.measurement import Load, Outcome, as_dict, measure, percentile
from tests.unit.cosyserve.client.serving import Door, serving, speech_of

LOUD = b"\x00\x40" * 1200
"""A twentieth of a second."""


class Scripted(Door):
    """Four pieces of a twentieth of a second; the third one comes after `pause` seconds."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__([self._answer])
        self.pause = pause
        self.at_once = self.most = 0

    async def _answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if request.voice == "ghost":
            raise NotFound("no voice 'ghost'")
        if request.voice == "full" and len(self.requests) > 2:
            raise Overloaded("full")
        if request.voice == "broken" and len(self.requests) > 2:
            raise InternalFault("an engine failed")
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for index, message in enumerate(speech_of(request, LOUD * 4)):
            await asyncio.sleep(self.pause if index == 2 else 0.0)
            yield message
        self.at_once -= 1


async def measured(load: Load, pause: float = 0.0) -> tuple[Outcome, Scripted]:
    scripted = Scripted(pause)
    async with serving(scripted) as client:
        return await measure(client, load), scripted


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([], 50) is None
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (1, 50, 51, 99)] == [1.0, 2.0, 3.0, 4.0]


async def test_streams_ask_again_and_every_request_is_another() -> None:
    outcome, scripted = await measured(Load(streams=3, seconds=0.3))
    assert scripted.most <= 3
    seeds = {request.seed for request in scripted.requests}
    assert len(seeds) == len(scripted.requests) == len(outcome.heard) + 3  # the warm-up is not counted
    assert len(outcome.heard) >= 6
    assert len(outcome.first_audible) == len(outcome.heard)
    assert outcome.audio_seconds == pytest.approx(0.2 * len(outcome.heard))
    assert (outcome.underruns, outcome.refusals, outcome.failures) == (0, [], [])
    shown = as_dict(Load(streams=3), outcome)
    assert shown["first_byte_milliseconds"]["p50"] <= shown["first_byte_milliseconds"]["p99"]
    assert (shown["streams"], shown["rate"]) == (3, None)


async def test_a_player_that_runs_dry_is_counted() -> None:
    outcome, _ = await measured(Load(streams=1, seconds=0.5, buffer_seconds=0.04), pause=0.4)
    assert outcome.underruns == len(outcome.heard) > 0
    assert 0.2 < outcome.longest_underrun_seconds < 0.4


async def test_a_rate_does_not_wait_for_answers() -> None:
    outcome, scripted = await measured(Load(streams=1, rate=40, seconds=0.5), pause=0.5)
    assert scripted.most > 2
    assert as_dict(Load(streams=1, rate=40), outcome)["rate"] == 40


async def test_whole_texts() -> None:
    outcome, _ = await measured(Load(streams=2, seconds=0.2, offline=True))
    assert len(outcome.heard) > 2
    assert outcome.first_byte == outcome.complete
    assert not outcome.first_audible


@pytest.mark.parametrize(("voice", "counted"), [("full", "refusals"), ("broken", "failures")])
async def test_refusals_and_failures_are_counted_apart(voice: str, counted: str) -> None:
    outcome, _ = await measured(Load(streams=2, seconds=0.3, voice=voice))
    assert {name for name in ("refusals", "failures") if getattr(outcome, name)} == {counted}
    assert as_dict(Load(streams=2), outcome)["first_byte_milliseconds"]["p50"] is None


async def test_a_server_that_answers_nothing_is_an_error() -> None:
    with pytest.raises(NotFound, match="ghost"):
        await measured(Load(streams=1, seconds=0.2, voice="ghost"))
