"""Passed is what ran to its end within its limit; what could not run was not run, and says why."""

from pathlib import Path

import pytest

from bench.acceptance import judges
from bench.acceptance.report import ACCEPTED, INCOMPLETE, REFUSED, as_dict, status, summary, text
from bench.acceptance.step import FELL_SHORT, NOT_RUN, PASSED, Judgement, Step, Verdict, verdict
from bench.parts.ledger import DONE, FAILED, LATE, LEFT_OUT, STOPPED, Ledger, Run
from bench.parts.part import Part
from bench.parts.provenance import Subject
from bench.reports.serving_report import Level

PART = Part("load", "callers at once", (("-m", "cosyserve", "bench", "a b"),))


def judge(figures: dict[str, float]) -> Judgement:
    return Judgement(f"{figures['seen']:g} ms", "at most 5 ms", figures["seen"] <= 5)


def found(state: str | None, seen: float | None = 4.0, told: tuple[str, ...] = (), part: Part = PART) -> Verdict:
    run = None if state is None else Run(state, 2.0, [], list(told))
    return verdict(Step(part, "at most 5 ms", judge), run, None if seen is None else {"seen": seen})


def test_what_ran_to_its_end_within_its_limit_has_passed() -> None:
    one = found(DONE)
    assert (one.verdict, one.figure, one.limit, one.why) == (PASSED, "4 ms", "at most 5 ms", "")
    assert one.command == "cosyserve bench 'a b'"


@pytest.mark.parametrize(
    ("state", "seen", "told", "why"),
    [
        (DONE, 6.0, (), "beyond its limit"),
        (DONE, None, (), "beyond its limit"),  # no figures: nothing shows that it is within
        (FAILED, 4.0, ("one", "no model"), "no model"),
        (FAILED, None, ("no model",), "no model"),
        (LATE, 4.0, ("half",), "stopped after 2 s"),
    ],
)
def test_what_failed(state: str, seen: float | None, told: tuple[str, ...], why: str) -> None:
    one = found(state, seen, told)
    assert (one.verdict, one.why) == (FELL_SHORT, why)


@pytest.mark.parametrize(
    ("state", "told", "why"),
    [
        (None, (), "not asked for"),
        (LEFT_OUT, ("convert is not done",), "convert is not done"),
        (STOPPED, (), "stopped before its end"),
    ],
)
def test_what_was_not_run_has_no_figure_and_a_reason(state: str | None, told: tuple[str, ...], why: str) -> None:
    one = found(state, 1.0, told)
    assert (one.verdict, one.figure, one.why) == (NOT_RUN, "", why)


def test_what_cannot_run_here_says_so_even_if_nobody_asked() -> None:
    prevented = Part("plans", "", (), prevented="there is no NVIDIA GPU")
    assert found(None, None, part=prevented).why == "there is no NVIDIA GPU"


def test_the_status_is_that_of_the_worst() -> None:
    passed, failed, left = found(DONE), found(DONE, 6.0), found(None)
    assert status([passed]) == ACCEPTED == 0
    assert status([passed, left]) == INCOMPLETE == 3
    assert status([passed, left, failed]) == REFUSED == 1
    assert summary([passed, left, failed, passed]) == "2 passed, 1 failed, 1 not run"


def test_the_report_has_a_row_and_a_command_for_each_step(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Subject("two cores", {"Python": "3.11"}, "abc", ""))
    written = text([found(DONE), found(DONE, 6.0), found(None)], ledger, Path("models/demo"))
    assert "| load | failed | 6 ms | at most 5 ms | 2 s |" in written
    assert "| load | not run | not asked for | at most 5 ms |  |" in written
    assert written.count("`cosyserve bench 'a b'`") == 3
    assert as_dict([found(DONE)], ledger, Path("m"))["steps"][0]["verdict"] == PASSED


def row(error: float | None, tolerance: float, verdict: str = "ok") -> dict[str, object]:
    return {"array": "mel", "error": error, "tolerance": tolerance, "verdict": verdict, "note": ""}


def test_comparisons_are_within_tolerance_all_or_it_failed() -> None:
    good = judges.rows([row(1e-6, 1e-5), row(0.0, 0.0)])
    assert good.holds
    assert good.figure == "2 of 2 comparisons within tolerance; largest error 10% of its tolerance (mel)"
    assert not judges.rows([row(1e-6, 1e-5), row(None, 0.0, "MISSING")]).holds
    assert not judges.rows([]).holds


def level(**changed: float) -> dict[str, object]:
    values = {
        "arrivals": "closed", "streams": 1, "requests": 9, "refused": 0, "failed": 0, "p50": 90.0, "p95": 99.0,
        "p99": 99.0, "real_time_factor": 0.3, "audio_per_second": 3.0, "gap_free": 1.0, "stall_seconds": 0.0,
        "stages": {}, "megabytes": None,
    }  # fmt: skip
    return vars(Level(**(values | changed)))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"refused": 1}, {"failed": 1}, {"gap_free": 0.9}, {"real_time_factor": 1.1}])
def test_a_load_that_refuses_fails_or_runs_dry(wrong: dict[str, float]) -> None:
    assert judges.loaded({"levels": [level()]}).holds
    assert not judges.loaded({"levels": [level(), level(**wrong)]}).holds
    assert not judges.loaded({"levels": []}).holds


def test_a_configuration_that_did_not_speak_says_why() -> None:
    silent = judges.spoken("audible", 1.0)({"reason": "the audio is silent", "start_seconds": 3.0})
    assert (silent.figure, silent.holds) == ("the audio is silent", False)


def test_sounds_are_alike_by_spectrum_and_length() -> None:
    alike = {"decibels": 0.1, "duration": 0.0}
    assert judges.sounds_alike({"sentences": [alike]}).holds
    assert not judges.sounds_alike({"sentences": [alike, {"decibels": 2.0, "duration": 0.0}]}).holds
    assert not judges.sounds_alike({"sentences": [alike, {"decibels": 0.1, "duration": 0.1}]}).holds
