"""What is asked of the engines on a large GPU, and what was seen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.stage_tables import WINDOW_FRAMES, windows
from bench.gpu.timing import LowerBounds
from bench.load.flat_memory import verdict
from bench.reports.serving_report import Level

MEL_RELATIVE = 1e-2
"""Relative error of a mel in bfloat16 that is rounding."""
ALL = 1.0


@dataclass(frozen=True)
class Target:
    """goal, seen, floor: as text, with units. holds: None where it was not measured."""

    what: str
    goal: str
    seen: str = "not measured"
    floor: str = ""
    holds: bool | None = None


def at_most(what: str, limit: float, unit: str, seen: float | None, floor: float | None = None) -> Target:
    goal = f"at most {limit:g} {unit}".strip()
    if seen is None:
        return Target(what, goal)
    return Target(
        what,
        goal,
        f"{seen:.3g} {unit}".strip(),
        f"{floor:.2g} {unit}".strip() if floor is not None else "",
        seen <= limit,
    )


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
    return [*_llm(results), *_token2wav(results, floors), *_served(results, floors), *_same(results), *_soak(results)]


def _llm(results: Mapping[str, Any]) -> Iterator[Target]:
    engine = results.get("llm-engine", {}).get("engine", {})
    rows = {row["sentences"]: row for row in engine.get("together", [])}
    for count, limit in ((1, 0.6), (64, 1.0)):
        row = rows.get(count, {})
        yield at_most(
            f"speech tokens, {count} at once: time of a step", limit, "ms", row.get("step_ms"), row.get("floor_ms")
        )
    alone = {row["positions"]: row["first_token_ms"] for row in engine.get("alone", [])}
    yield at_most("prompt of 256 positions to the first token", 5.0, "ms", alone.get(256))


def _token2wav(results: Mapping[str, Any], floors: LowerBounds | None) -> Iterator[Target]:
    flow = results.get("flow", {})
    alone = {
        kind: ms for (kind, frames, batch), ms in windows(results).items() if batch == 1 and frames == WINDOW_FRAMES
    }
    first = "first flow chunk behind 87 prompt tokens"
    yield at_most(f"{first}, nothing kept", 15.0, "ms", flow.get("cold"), floors.flow(4) if floors else None)
    yield at_most(f"{first}, prompt kept", 8.0, "ms", flow.get("kept"), floors.flow(1) if floors else None)
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
        for streams, limit, percentile in ((1, 60.0, "p50"), (8, 120.0, "p95"), (64, 500.0, "p95")):
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
    search = levels(results, "most")
    what, goal = "most listeners at once without a gap", "128"
    if search:
        whole, nearly = most_without_gap(search, ALL), most_without_gap(search, 0.99)
        yield Target(what, goal, f"{whole or 0}; 99 % of the streams: {nearly or 0}", holds=(whole or 0) >= 128)
    else:
        yield Target(what, goal)


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
    what, goal = "minutes at 32 streams with hang-ups: memory flat, no error", "8 minutes"
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
