"""The spans of hops: what a hop waited for has a name."""

import time

import numpy as np
import pytest

from services.token2wav.decoders.interface import Decoded
from services.token2wav.scheduling.hop_timings import HopTimings, hold_timings

MS = 1_000_000


def part(flow: tuple[int, int], vocoder: tuple[int, int] | None) -> Decoded:
    return Decoded(np.zeros(0, np.float32), 25, 0 if vocoder is None else 50, flow, vocoder)


def spans(timings: HopTimings, hop: int, *parts: Decoded) -> list[tuple[str, int, int]]:
    return [(each.name.removeprefix("token2wav."), each.start_ns, each.end_ns) for each in timings.of(hop, parts)]


def test_the_waits_of_a_hop_and_its_work_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    timings, complete = HopTimings(), 100 * MS
    monkeypatch.setattr(time, "time_ns", lambda: complete)
    timings.tokens_complete()
    # A step inside the prompt before the tokens were there, a wait, two steps and one between.
    first = spans(
        timings,
        0,
        part((50 * MS, 90 * MS), None),
        part((130 * MS, 150 * MS), (150 * MS, 160 * MS)),
        part((165 * MS, 170 * MS), (170 * MS, 180 * MS)),
    )
    assert [span for span in first if span[0] == "queue"] == [
        ("queue", 100 * MS, 130 * MS),
        ("queue", 160 * MS, 165 * MS),
    ]
    # The tokens of the next hop were there: it waits from the end of the hop before. Waits of less
    # than a millisecond have no span.
    assert spans(timings, 1, part((180 * MS + 900_000, 190 * MS), (190 * MS, 200 * MS))) == [
        ("flow", 180 * MS + 900_000, 190 * MS),
        ("vocoder", 190 * MS, 200 * MS),
    ]
    assert spans(timings, 2, part((202 * MS, 210 * MS), (210 * MS, 220 * MS)))[-1] == ("queue", 200 * MS, 202 * MS)


def test_only_a_hop_that_was_held_back_has_the_span() -> None:
    assert hold_timings(0, 0.0005) == []
    (held,) = hold_timings(3, 0.25)
    assert held.milliseconds == pytest.approx(250)
    assert (held.name, held.attributes) == ("token2wav.hold", {"hop": 3})
