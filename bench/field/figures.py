"""The figures of a load: percentiles with their intervals, underruns, seconds of sound a second."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.field.answer import ANSWERED, FAILED, REFUSED, Answer
from bench.field.arrivals import Schedule
from bench.field.callers import Heard
from bench.field.doors import ADMITTED, SPENT
from bench.field.loads import Load
from cosyserve.client.types import STAGES

PERCENTILES = (50, 95, 99)
RESAMPLES, COVERAGE = 2_000, 0.95
_CELLS = 1 << 22
"""Numbers that are drawn at once."""
LATE_MILLISECONDS, BUSY = 2.0, 0.7
"""Of the calling processes, above which a load measures them: the 99th percentile of how late a
request was sent, and the share of a core.
"""

ELSEWHERE, WAY = "elsewhere", "way"
"""Milliseconds between admission and first message that no stage counts; and those before and
behind both, on the way of the request and of the sound, and late sending.
"""
Interval = tuple[float, float, float]
"""A value and the ends of its interval."""


@dataclass(frozen=True)
class Row:
    """One load. requests: that were counted: answered, refused and failed ones. first, audible:
    milliseconds from the moment at which a request was due to the first byte of sound, and to the
    first audible sample, for each of PERCENTILES, with the interval that holds COVERAGE of
    RESAMPLES resamples; inaudible: answers without an audible sample, which `audible` leaves out.
    underruns: requests whose player, which begins with the first byte, ran dry; longest_dry:
    milliseconds that one of them had nothing to play at most.

    mean_audio: seconds of an answer. audio_per_second: seconds of sound that arrived in a second,
    while requests were counted. at_once: requests under way at most. late: milliseconds, 99th
    percentile, and busy: share of a core, of the calling processes. reasons: why requests failed.
    hints: seconds after which refused ones may come again, as the server says: the fewest, the
    median and the most. spent: p50 and p95 of the milliseconds of each of SPENT, ELSEWHERE and WAY.
    """

    load: str
    door: str
    rate: float
    kind: str
    voices: tuple[str, ...]
    requests: int
    answered: int
    refused: int
    failed: int
    seconds: float
    first: dict[str, Interval]
    audible: dict[str, Interval]
    any_sample: bool
    underruns: int
    longest_dry: float
    mean_audio: float
    audio_per_second: float
    at_once: int
    late: float
    busy: float
    reasons: tuple[str, ...] = ()
    hints: tuple[float, ...] = ()
    spent: dict[str, tuple[float, float]] = field(default_factory=dict)
    inaudible: int = 0

    @property
    def client_bound(self) -> bool:
        """Whether it says more of the calling processes than of the server."""
        return self.late > LATE_MILLISECONDS or self.busy > BUSY

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Row":
        """Of `as_dict`, that JSON may have been. Earlier reports lack `hints`, `spent` and
        `inaudible`.
        """
        lists = {name: tuple(fields.get(name, ())) for name in ("voices", "reasons", "hints")}
        spent = {name: tuple(values) for name, values in fields.get("spent", {}).items()}
        percentiles = {
            name: {percent: tuple(three) for percent, three in fields[name].items()} for name in ("first", "audible")
        }
        return cls(**{**fields, **lists, **percentiles, "spent": spent})

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def row(load: Load, plan: Schedule, heard: Heard, *, any_sample: bool) -> Row:
    """Raises ValueError if no counted request was answered."""
    counted = [one for one in heard.answers if one.counted]
    answered = [one for one in counted if one.state == ANSWERED]
    failures = sorted({one.reason for one in counted if one.state == FAILED})
    if not answered:
        reasons = failures or sorted({one.reason for one in counted})
        raise ValueError(f"{load.name}: no request of {len(counted)} was answered: {'; '.join(reasons[:3])}")
    due = {request.number: request.at for request in plan.requests}
    return Row(
        load=load.name,
        door=load.door,
        rate=load.rate,
        kind=load.kind,
        voices=load.voices,
        requests=len(counted),
        answered=len(answered),
        refused=sum(one.state == REFUSED for one in counted),
        failed=sum(one.state == FAILED for one in counted),
        seconds=plan.end - plan.begin,
        first=intervals([1000 * one.first for one in answered if one.first is not None], load.name),
        audible=intervals([1000 * one.audible for one in answered if one.audible is not None], load.name),
        any_sample=any_sample,
        underruns=sum(one.dry > 0 for one in answered),
        longest_dry=1000 * max(one.longest_dry for one in answered),
        mean_audio=sum(one.audio for one in answered) / len(answered),
        audio_per_second=sum(one.in_window for one in heard.answers) / (plan.end - plan.begin),
        at_once=most_at_once([(due[one.number] + one.late, due[one.number] + one.end) for one in heard.answers]),
        late=1000 * float(np.percentile([one.late for one in counted], 99)),
        busy=heard.busy,
        reasons=tuple(failures[:3]),
        hints=_hints([one.hint for one in counted if one.hint is not None]),
        spent=_spent([one for one in answered if one.spent]),
        inaudible=sum(one.audible is None for one in answered),
    )


def _hints(seconds: Sequence[float]) -> tuple[float, ...]:
    return (min(seconds), float(np.median(seconds)), max(seconds)) if seconds else ()


def _spent(answers: Sequence[Answer]) -> dict[str, tuple[float, float]]:
    if not answers:
        return {}
    values = {name: [one.spent[name] for one in answers] for name in SPENT}
    values[ELSEWHERE] = [one.spent[ADMITTED] - sum(one.spent[stage] for stage in STAGES) for one in answers]
    values[WAY] = [1000 * (one.first or 0.0) - one.spent[ADMITTED] for one in answers]
    return {name: (float(np.percentile(each, 50)), float(np.percentile(each, 95))) for name, each in values.items()}


def intervals(values: Sequence[float], name: str = "") -> dict[str, Interval]:
    """Each of PERCENTILES of `values`, by `interval`; nothing for no values."""
    return {f"p{percent}": interval(values, percent, name=name) for percent in PERCENTILES} if values else {}


def interval(values: Sequence[float], percent: float, coverage: float = COVERAGE, name: str = "") -> Interval:
    """A percentile, interpolated between neighbours, and the interval that holds `coverage` of the
    same percentile of resamples (percentile bootstrap; Efron 1979). The draws are named: the same
    values and name have the same interval.
    """
    given = np.asarray(values, np.float64)
    draw = np.random.default_rng(zlib.crc32(f"{name} {percent}".encode()))
    rows = max(1, min(RESAMPLES, _CELLS // given.size))
    found: list[NDArray[np.float64]] = []
    for begin in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - begin)
        found.append(np.percentile(given[draw.integers(given.size, size=(count, given.size))], percent, axis=1))
    outside = 50 * (1 - coverage)
    # "nearest": an end of the interval is a percentile that some resample has.
    low, high = np.percentile(np.concatenate(found), (outside, 100 - outside), method="nearest")
    return float(np.percentile(given, percent)), float(low), float(high)


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """How many spans of a begin and an end overlap at most."""
    events = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most
