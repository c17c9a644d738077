"""What is asked of the engines and services on a large GPU, and what was seen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.parts import LONG_SECONDS, SOAK_STREAMS
from bench.gpu.stage_tables import WINDOW_FRAMES, windows
from bench.gpu.timing import LowerBounds
from bench.load.flat_memory import verdict
from bench.reports.serving_report import Level

MEL_RELATIVE = 1e-2
"""Relative error of a mel in bfloat16 that is rounding."""
ALL = 1.0
PREFILL = 256
"""Positions of a prompt."""
LEAST_LISTENERS, LISTENERS_GOAL = 216, 500
ELSEWHERE = (
    *(
        (f"first sound over HTTP p95, {rate} requests a second", f"at most {limit} ms", "`make bench-field`")
        for rate, limit in ((1, 20), (10, 26), (20, 45), (40, 80))
    ),
    ("first sound over HTTP p50, one stream", "at most 15 ms", "`make bench-field`"),
    ("players that run dry over HTTP, up to 60 requests a second", "none", "`make bench-field`"),
    ("start of the services with kernels kept", "at most 15 s", "`make bench-field`"),
    (
        "two GPUs by one: listeners without a gap, and audio a second", "at least 1.9 times",
        "`cosyserve up --devices` and `python -m bench.serving --server`",
    ),
)  # fmt: skip
"""What is asked for, and by what it is measured, as none of these parts does."""


@dataclass(frozen=True)
class Target:
    """goal, seen, floor: as text, with units. holds: None where it was not measured."""

    what: str
    goal: str
    seen: str = "not measured"
    floor: str = ""
    holds: bool | None = None


def at_most(what: str, limit: float, unit: str, seen: float | None, floor: float | None = None) -> Target:
    bound = "" if floor is None else f"{floor:.2g} {unit}"
    return _target(what, f"at most {limit:g} {unit}", unit, seen, bound, seen is not None and seen <= limit)


def at_least(what: str, limit: float, unit: str, seen: float | None, ceiling: float | None = None) -> Target:
    """ceiling: the most that the chip can reach."""
    bound = "" if ceiling is None else f"at most {ceiling:,.0f} {unit}"
    return _target(what, f"at least {limit:g} {unit}", unit, seen, bound, seen is not None and seen >= limit)


def _target(what: str, goal: str, unit: str, seen: float | None, bound: str, holds: bool) -> Target:
    """bound: what the chip allows. holds: of what was seen."""
    if seen is None:
        return Target(what, goal.strip())
    return Target(what, goal.strip(), f"{seen:.3g} {unit}".strip(), bound.strip(), holds)


def levels(results: Mapping[str, Any], part: str) -> list[Level]:
    return [Level(**one) for one in results.get(part, {}).get("levels", [])]


def most_without_gap(loads: Sequence[Level], share: float) -> int | None:
    """The largest load up to which every one had at least `share` of its streams without a gap and
    refused or failed none.
    """
    most = None
    for one in sorted(loads, key=lambda load: load.streams):
        if one.gap_free < share or one.refused or one.failed:
            break
        most = one.streams
    return most


def demands(results: Mapping[str, Any]) -> list[Target]:
    """results: the figures of each part that has some."""
    ceilings = results.get("ceilings", {}).get("ceilings")
    floors = LowerBounds(ceilings) if ceilings else None
    return [
        *_llm(results),
        *_token2wav(results, floors),
        *_served(results, floors),
        *_listeners(results),
        *_same(results),
        *_soak(results),
        *(Target(what, goal, f"not measured here, by {by}") for what, goal, by in ELSEWHERE),
    ]


def _llm(results: Mapping[str, Any]) -> Iterator[Target]:
    engine = results.get("llm-engine", {}).get("engine", {})
    rows = {row["sentences"]: row for row in engine.get("together", [])}
    for count, limit in ((1, 0.35), (64, 0.8)):
        row = rows.get(count, {})
        yield at_most(
            f"speech tokens, {count} at once: time of a step", limit, "ms", row.get("step_ms"), row.get("floor_ms")
        )
    one_launch = results.get("llm-one-launch", {}).get("one-launch", {}).get("engine", {})
    yield at_most(
        "a token of one sentence, GPU_DECODE=one_launch",
        0.35,
        "ms",
        one_launch.get("one_launch_ms"),
        rows.get(1, {}).get("floor_ms"),
    )
    chunks = results.get("llm-steps", {}).get("steps", {}).get("chunks", [])
    prefill = {one["count"]: one["us"] / 1000 for one in chunks if one["first"] == 0}
    yield at_most(f"prefill of {PREFILL} positions, its chunk", 1.5, "ms", prefill.get(PREFILL))


def _token2wav(results: Mapping[str, Any], floors: LowerBounds | None) -> Iterator[Target]:
    flow = results.get("flow", {})
    alone = {
        kind: ms for (kind, frames, batch), ms in windows(results).items() if batch == 1 and frames == WINDOW_FRAMES
    }
    first = "first flow chunk behind 87 prompt tokens"
    yield at_most(f"{first}, nothing kept", 8.0, "ms", flow.get("cold"), floors.flow(4) if floors else None)
    yield at_most(f"{first}, prompt kept", 5.0, "ms", flow.get("kept"), floors.flow(1) if floors else None)
    for kind, ms in alone.items() or (("float16", None),):
        yield at_most(f"vocoder for it, {kind}", 2.0, "ms", ms, floors.vocoder() if floors else None)
    one, many = flow.get("1 4"), flow.get("16 4")
    yield at_most("flow, 16 streams in a batch by one stream", 3.0, "times", many / one if one and many else None)
    lengths = results.get("lengths", {})
    costs = {seconds: lengths[seconds]["milliseconds_per_second"] for seconds in ("4", "30") if seconds in lengths}
    yield at_most(
        "token2wav, a second of audio in 30 s by one in 4 s",
        1.3,
        "times",
        costs["30"] / costs["4"] if len(costs) == 2 else None,
    )


def _served(results: Mapping[str, Any], floors: LowerBounds | None) -> Iterator[Target]:
    rows = results.get("llm-engine", {}).get("engine", {}).get("together", [])
    floor = floors.tokens(rows[0]["floor_ms"]) + floors.flow(1) + floors.vocoder() if floors and rows else None
    for part, name in (("closed", "closed loop"), ("poisson", "Poisson arrivals")):
        loads = {one.streams: one for one in levels(results, part)}
        for streams, limit, percentile in ((1, 15.0, "p50"), (8, 120.0, "p95"), (64, 500.0, "p95")):
            seen = getattr(loads[streams], percentile) if streams in loads else None
            yield at_most(f"first sound {percentile}, {streams} streams, {name}", limit, "ms", seen, floor)
    for part, name in (("closed", "closed loop"), ("poisson", "Poisson arrivals"), ("most", "listening")):
        loads = {one.streams: one for one in levels(results, part)}
        what, goal = f"64 streams without a gap, {name}", "all"
        if 64 in loads:
            one = loads[64]
            seen = f"{one.gap_free:.1%}, longest stall {one.stall_seconds:.2f} s"
            if unheard := one.refused + one.failed:
                seen += f", {unheard} of {one.requests} not heard"
            yield Target(what, goal, seen, holds=one.gap_free == ALL and not unheard)
        else:
            yield Target(what, goal)
    made = [one.audio_per_second for one in levels(results, "closed")]
    yield at_least(
        "audio, the most of a closed loop", 500.0, "s/s", max(made, default=None), floors.audio() if floors else None
    )


def _listeners(results: Mapping[str, Any]) -> Iterator[Target]:
    what = "most listeners at once without a gap"
    for part, name, goals in (
        ("most", what, (("128", 128),)),
        (
            "most-long",
            f"{what}, sentences of {LONG_SECONDS} s",
            ((f"at least {LEAST_LISTENERS}", LEAST_LISTENERS), (f"goal {LISTENERS_GOAL}", LISTENERS_GOAL)),
        ),
    ):
        search = levels(results, part)
        whole, nearly = most_without_gap(search, ALL) or 0, most_without_gap(search, 0.99) or 0
        for goal, least in goals:
            if search:
                yield Target(name, goal, f"{whole}; 99 % of the streams: {nearly}", holds=whole >= least)
            else:
                yield Target(name, goal)


def _same(results: Mapping[str, Any]) -> Iterator[Target]:
    exact = results.get("llm-same", {}).get("same", {}).get("float32", {})
    for key, what in (("against the readable path", "fused = readable"), ("against alone", "32 at once = each alone")):
        pair = exact.get(key)
        what_text = f"speech tokens in float32, {what}"
        if not pair:
            yield Target(what_text, "the same")
            continue
        seen = f"{pair['equal']} of {pair['of']} sentences, {pair['agreed_tokens']} tokens"
        yield Target(what_text, "the same", seen, holds=pair["equal"] == pair["of"])
    mel = results.get("mel", {}).get("bfloat16")
    yield at_most("mel of the flow in bfloat16, relative error", MEL_RELATIVE, "", mel[0] if mel else None)
    errors = {
        name.removesuffix(" error"): error[0]
        for name, error in results.get("vocoder", {}).items()
        if name.endswith(" error")
    }
    for kind, error in errors.items() or (("float16", None),):
        yield at_most(f"sound of the vocoder in {kind}, relative error", MEL_RELATIVE, "", error)


def _soak(results: Mapping[str, Any]) -> Iterator[Target]:
    soak = results.get("soak")
    what = f"minutes at {SOAK_STREAMS} streams with hang-ups: memory flat, no error"
    goal = "8 minutes"
    if not soak:
        yield Target(what, goal)
        return
    wrong = verdict(soak)
    counted = (
        f"{soak['seconds'] / 60:.1f} minutes, {soak['heard_out']} heard out, {soak['hung_up']} hung up, "
        f"{soak['failed']} errors"
    )
    yield Target(what, goal, "; ".join([counted, *wrong]), holds=not wrong and soak["seconds"] >= 8 * 60)


WORDS = {True: "yes", False: "**no**", None: ""}


def rows(outcomes: Sequence[Target]) -> Iterator[tuple[str, ...]]:
    """Cells of a table: what, goal, seen, floor, whether it holds."""
    return ((one.what, one.goal, one.seen, one.floor, WORDS[one.holds]) for one in outcomes)
