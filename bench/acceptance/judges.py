"""What the figures of each kind of step come to, and whether they are within their limits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.acceptance.step import Judgement
from bench.reports.serving_report import Level

REAL_TIME = 1.0
"""Seconds of computing for a second of sound, above which a listener runs dry."""
GAP_FREE = 0.95
"""Least share of the streams of a load whose player never ran dry."""
MOST_DECIBELS = 1.0
"""Mean difference of two spectra of the same sentence; `bench.acceptance.sound` says how it is
taken.
"""
MOST_DURATION = 0.01
"""Difference of their lengths, as a share."""
AUDIBLE = "audible, the same samples again"
IN_REAL_TIME = f"{AUDIBLE}, real-time factor below {REAL_TIME:g}"
ALIKE = f"spectra at most {MOST_DECIBELS:g} dB apart, lengths at most {MOST_DURATION:.0%}"
SERVED = f"{GAP_FREE:.0%} without a gap, real-time factor below {REAL_TIME:g}, none refused, none failed"


def doctor(figures: Mapping[str, Any]) -> Judgement:
    states = [finding["state"] for finding in figures["findings"]]
    problems = [finding["check"] for finding in figures["findings"] if finding["state"] == "problem"]
    counts = f"{len(states)} checks, {states.count('note')} notes, {len(problems)} problems"
    return Judgement(": ".join([counts, ", ".join(problems)]) if problems else counts, "no problem", not problems)


def inspected(figures: Mapping[str, Any]) -> Judgement:
    """A directory of flow and vocoder alone has no speech-token model and no voices."""
    parts = [*figures["token2wav"].values(), *([figures["llm"]] if "llm" in figures else [])]
    parameters, problems = sum(part["parameters"] for part in parts), figures["problems"]
    said = f"{parameters / 1e6:.1f} million parameters"
    said += f", {len(figures['voices'])} voices" if "voices" in figures else ""
    return Judgement("; ".join([said, *map(str, problems)]), "no problem", not problems)


def reference_arrays(figures: Mapping[str, Any]) -> Judgement:
    """Of `cosyserve verify`."""
    return rows([row for stage in figures["stages"].values() for row in stage])


def compared(figures: Mapping[str, Any]) -> Judgement:
    """Of `cosyserve model verify`."""
    return rows(figures["arrays"])


def rows(found: Sequence[Mapping[str, Any]]) -> Judgement:
    """Comparisons, each with its own tolerance."""
    good = sum(row["verdict"] == "ok" for row in found)
    shares = {
        row["array"]: row["error"] / row["tolerance"]
        for row in found
        if row["tolerance"] and row["error"] is not None and row["error"] == row["error"]
    }
    worst = max(shares, key=lambda name: shares[name], default=None)
    closest = "" if worst is None else f"; largest error {shares[worst]:.0%} of its tolerance ({worst})"
    return Judgement(
        f"{good} of {len(found)} comparisons within tolerance{closest}",
        "all within tolerance",
        bool(found) and good == len(found),
    )


def spoken(limit: str, most: float) -> Callable[[Mapping[str, Any]], Judgement]:
    """Of a configuration that spoke (`bench.acceptance.speech`). most: real-time factor that is
    still within the limit.
    """

    def judge(figures: Mapping[str, Any]) -> Judgement:
        if figures["reason"]:
            return Judgement(figures["reason"], limit, holds=False)
        said = (
            f"started in {figures['start_seconds']:.1f} s; first audible sample {figures['cold_milliseconds']:.0f} ms, "
            f"warm {figures['warm_milliseconds']:.0f} ms; real-time factor {figures['real_time_factor']:.2f}"
        )
        return Judgement(said, limit, figures["real_time_factor"] < most)

    return judge


def sounds_alike(figures: Mapping[str, Any]) -> Judgement:
    """Of an engine of token2wav against the readable one (`bench.acceptance.sound`)."""
    worst = max(figures["sentences"], key=lambda one: one["decibels"])
    longest = max(one["duration"] for one in figures["sentences"])
    said = (
        f"{len(figures['sentences'])} sentences; spectra differ by {worst['decibels']:.3f} dB at most, "
        f"lengths by {longest:.2%}"
    )
    return Judgement(said, ALIKE, worst["decibels"] <= MOST_DECIBELS and longest <= MOST_DURATION)


def heard(most_errors: float) -> Callable[[Mapping[str, Any]], Judgement]:
    """Of `tools.quality`. most_errors: word error rate of each voice."""

    def judge(figures: Mapping[str, Any]) -> Judgement:
        voices = [
            f"{name} {one['errors']['rate']:.1%} of the words of {len(one['sentences'])} sentences wrong"
            for name, one in figures["voices"].items()
        ]
        said = "; ".join([*voices, *figures["exceeded"]])
        return Judgement(said, f"at most {most_errors:.0%} of the words wrong, no sentence marred", bool(figures["ok"]))

    return judge


def loaded(figures: Mapping[str, Any]) -> Judgement:
    """Of `bench.serving`."""
    levels = [Level(**one) for one in figures["levels"]]
    said = [
        f"{one.streams} at once: {one.requests} requests, first byte {one.p95:.0f} ms (p95), "
        f"real-time factor {one.real_time_factor:.2f}, {one.gap_free:.1%} without a gap, {one.refused} refused, "
        f"{one.failed} failed"
        for one in levels
    ]
    holds = all(
        one.gap_free >= GAP_FREE and not one.refused and not one.failed and one.real_time_factor < REAL_TIME
        for one in levels
    )
    return Judgement("; ".join(said), SERVED, bool(levels) and holds)
