"""What many listeners heard: the figures of a load, a line of each, and their file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.parts.part import write
from cosyserve.client.types import STAGES
from cosyserve.load.measurement import Outcome


@dataclass(frozen=True)
class Level:
    """One load. arrivals: "closed", "poisson" or "listening". streams: askers, or listeners at
    once, for Poisson arrivals on average.

    p50, p95, p99: milliseconds to the first byte at the client. audible_p50, audible_p95: to the
    first sample above -40 dBFS in a player that starts with the first byte; None in reports of
    earlier releases, or when nothing was above it. real_time_factor: median of waiting over audio;
    audio_per_second: seconds of speech made in a second by all.

    gap_free: share of the streams that never ran dry; stall_seconds: the longest that one of them
    stood still. stages: median milliseconds of the first sound by stage, as the server reports.
    megabytes: of GPU memory in use by all processes; None without a GPU. callers: processes that
    asked.
    """

    arrivals: str
    streams: int
    requests: int
    refused: int
    failed: int
    p50: float
    p95: float
    p99: float
    real_time_factor: float
    audio_per_second: float
    gap_free: float
    stall_seconds: float
    stages: dict[str, float]
    megabytes: float | None
    audible_p50: float | None = None
    audible_p95: float | None = None
    callers: int = 1


def level(arrivals: str, streams: int, outcome: Outcome, megabytes: float | None, callers: int = 1) -> Level:
    """The figures of a load. Raises ValueError when no answer came."""
    heard, refused, failed = outcome.heard, len(outcome.refusals), len(outcome.failures)
    if not heard:
        raise ValueError(f"no request of {streams} {arrivals} streams was answered: {refused} refused, {failed} failed")
    p50, p95, p99 = np.percentile([1000 * one.first_sound for one in heard], (50, 95, 99)).tolist()
    audible = [1000 * seconds for seconds in outcome.first_audible]
    audible_p50, audible_p95 = np.percentile(audible, (50, 95)).tolist() if audible else (None, None)
    return Level(
        arrivals=arrivals,
        streams=streams,
        requests=len(heard) + refused + failed,
        refused=refused,
        failed=failed,
        p50=p50,
        p95=p95,
        p99=p99,
        real_time_factor=float(np.median(outcome.real_time_factor)),
        audio_per_second=outcome.audio_seconds / outcome.seconds,
        gap_free=sum(not one.gaps for one in heard) / len(heard),
        stall_seconds=max(one.stalls for one in heard),
        stages={stage: float(np.median([one.summary.first_sound[stage] for one in heard])) for stage in STAGES},
        megabytes=megabytes,
        audible_p50=audible_p50,
        audible_p95=audible_p95,
        callers=callers,
    )


HEAD = (
    "arrivals streams requests refused failed    first byte p50    p95    p99   audible p50    p95 ms    RTF   audio "
    "s/s   gap-free   "
    "longest stall   GPU MB"
)


def row(one: Level) -> str:
    """A line under HEAD."""
    memory = "" if one.megabytes is None else f"{one.megabytes:8.0f}"
    audible = ("-" if each is None else f"{each:.0f}" for each in (one.audible_p50, one.audible_p95))
    return (
        f"{one.arrivals:9} {one.streams:6} {one.requests:8} {one.refused:7} {one.failed:6} {one.p50:17.0f} "
        f"{one.p95:6.0f} {one.p99:6.0f} {next(audible):>13} {next(audible):>6} {one.real_time_factor:9.3f} "
        f"{one.audio_per_second:11.1f} {one.gap_free:10.1%} {one.stall_seconds:13.2f} s {memory}"
    )


def write_json(path: Path, machine: str, levels: Sequence[Level]) -> None:
    """All so far, whole or not at all: a run that is cut short leaves what it had."""
    write(path, {"machine": machine, "levels": [asdict(one) for one in levels]})


def read_json(path: Path, machine: str, callers: int = 1) -> list[Level]:
    """What `write_json` wrote; nothing when there is no file. Raises ValueError when it was another
    machine, or another number of calling processes.
    """
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content["machine"] != machine:
        raise ValueError(f"{path} holds figures of {content['machine']!r}, this is {machine!r}; name another file")
    levels = [Level(**fields) for fields in content["levels"]]
    if others := {one.callers for one in levels} - {callers}:
        raise ValueError(
            f"{path} holds loads of --callers {min(others)}, this is --callers {callers}; name another file"
        )
    return levels
