"""One step of an acceptance, and its verdict."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.parts.ledger import DONE, FAILED, LATE, LEFT_OUT, Run
from bench.parts.part import Part

PASSED, FELL_SHORT, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True)
class Judgement:
    """figure, limit: as text, with units. holds: whether the figure is within the limit."""

    figure: str
    limit: str
    holds: bool


@dataclass(frozen=True)
class Step:
    """judge: what the figures of the part come to. limit: in words, where there are no figures to
    judge.
    """

    part: Part
    limit: str
    judge: Callable[[Any], Judgement] | None = None


@dataclass(frozen=True)
class Verdict:
    """A row of the report. verdict: PASSED, FELL_SHORT or NOT_RUN. why: of one that did not pass.
    command: as it is run in a shell. seconds: that it took.
    """

    name: str
    about: str
    command: str
    figure: str
    limit: str
    verdict: str
    why: str
    seconds: float


def verdict(step: Step, run: Run | None, figures: Any) -> Verdict:
    """run: how the part ended, None if it was not begun. figures: None if there are none.

    Passed is only what ran to its end and whose figures are within the limit: what could not run
    was not run.
    """
    judged = _judged(step, figures)
    if run is None or run.state not in (DONE, FAILED, LATE):
        outcome, why = NOT_RUN, _why_not(step.part, run)
    elif run.state == LATE:
        outcome, why = FELL_SHORT, f"stopped after {run.seconds:.0f} s"
    elif run.state == DONE and judged.holds:
        outcome, why = PASSED, ""
    else:
        outcome, why = FELL_SHORT, run.told[-1] if run.told else "beyond its limit"
    return Verdict(
        name=step.part.name,
        about=step.part.about,
        command=" && ".join(map(command_line, step.part.commands)),
        figure="" if outcome == NOT_RUN else judged.figure,
        limit=judged.limit,
        verdict=outcome,
        why=why.strip(),
        seconds=0.0 if run is None else run.seconds,
    )


def _judged(step: Step, figures: Any) -> Judgement:
    if step.judge is None:
        return Judgement("", step.limit, holds=True)
    if figures is None:
        return Judgement("no figures", step.limit, holds=False)
    return step.judge(figures)


def _why_not(part: Part, run: Run | None) -> str:
    if part.prevented:
        return part.prevented
    if run is None:
        return "not asked for"
    return run.told[-1] if run.state == LEFT_OUT and run.told else "stopped before its end"


def command_line(words: tuple[str, ...]) -> str:
    """Arguments of Python as a user would write the command."""
    cosyserve = words[:2] == ("-m", "cosyserve")
    return shlex.join(("cosyserve", *words[2:]) if cosyserve else ("python", *words))
