"""Fallback between engines, from the fastest to the one that always runs. An engine that cannot
serve here is skipped once, with its reason.

auto: the first engine that serves. strict: the first engine, or an error.

An engine built from files of its own must also generate speech before it counts as one that serves
(`first_speaking`): a library may load such files and then fail to run them. An engine that does
not load in time is skipped as well: some libraries wait for ever for a process that could not be
started.
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cosyserve.engines.gpu_facts import has_nvidia_device
from cosyserve.engines.time_limit import CallTimedOut, run_with_time_limit
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.metrics import names
from cosyserve.metrics.instruments import Labels, gauge

log = logging.getLogger(__name__)
T = TypeVar("T")
P = TypeVar("P")
LOAD_SECONDS = 900.0
"""Time limit in seconds for loading one engine if no setting gives another: kernels that are
compiled at the first start take minutes.
"""
_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,()'\"]+/)*([^\s/:;,()'\"]+)/?")


class EngineUnavailable(SettingsError):
    """An engine cannot serve on this machine, with this installation or these settings; the message
    says why and what would change it.
    """


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """One engine to try."""

    name: str
    """As reported by GetInfo."""
    load: Callable[[], T]
    """Blocks; raises EngineUnavailable, or another SettingsError, if this engine cannot serve."""
    needs_files: bool = False
    """Whether it is built by a command from files of its own, so that a ModelError, too, is a
    reason to try the next engine.
    """
    discard: Callable[[T], None] = lambda engine: None
    """Releases an engine that was loaded after its time limit; blocks."""


@dataclass(frozen=True)
class Refusal:
    """An engine that was skipped. reason: without paths."""

    rung: str
    reason: str


@dataclass(frozen=True)
class LoadedEngine(Generic[T]):
    """The engine that was loaded."""

    engine: T
    rung: str
    refused: tuple[Refusal, ...] = ()
    needs_files: bool = False
    """As of its Candidate."""


@dataclass(frozen=True)
class ResumeFrom:
    """Where to continue after an engine that was loaded and did not speak: after `rung`. refused:
    engines skipped before it. reason: why it failed. The engine itself is not here, because the
    next one needs its memory.
    """

    rung: str
    refused: tuple[Refusal, ...]
    reason: str


def first_working(
    service: str,
    rungs: Sequence[Candidate[T]],
    *,
    strict: bool,
    setting: str,
    choice: str = "",
    below: ResumeFrom | None = None,
    load_seconds: float = LOAD_SECONDS,
) -> LoadedEngine[T]:
    """Load the first engine of `rungs` that serves; blocks. setting: name of the variable of
    `strict`. choice: the variable that leaves no other engine, with its value; the error names it.
    load_seconds: time limit for each load.

    Raises what the last engine raises, EngineUnavailable if it did not load in time, ModelError if
    it did not speak, and with strict EngineUnavailable if the first one cannot serve.
    """
    refused: list[Refusal] = []
    if below is not None:
        rest = rungs[[rung.name for rung in rungs].index(below.rung) + 1 :]
        if not rest:
            raise ModelError(below.reason)
        if strict:
            raise EngineUnavailable(f"{setting} is true and {below.rung} cannot serve: {below.reason}")
        refused = [*below.refused, _stepped_over(service, below.rung, rest[0].name, below.reason)]
        rungs = rest
    for rung, next_rung in zip(rungs, [*rungs[1:], None], strict=True):
        try:
            engine = _loaded(rung, load_seconds)
        except (SettingsError, ModelError) as error:
            if next_rung is None and choice and isinstance(error, SettingsError):
                raise EngineUnavailable(f"{choice} is set and {rung.name} cannot serve: {error}") from error
            if next_rung is None or (isinstance(error, ModelError) and not rung.needs_files):
                raise
            if strict:
                raise EngineUnavailable(f"{setting} is true and {rung.name} cannot serve: {error}") from error
            refused.append(_stepped_over(service, rung.name, next_rung.name, str(error)))
            continue
        footing = LoadedEngine(engine, rung.name, tuple(refused), rung.needs_files)
        log.info("%s: %s serves", service, rung.name)
        record_metrics(footing)
        return footing
    raise ValueError("at least one rung is needed")


def check_load_seconds(seconds: float) -> None:
    """Raises ValueError for an invalid time limit."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"load_seconds is {seconds:g}; it must be more than 0 and finite")


def _loaded(rung: Candidate[T], seconds: float) -> T:
    try:
        return run_with_time_limit(seconds, rung.load, rung.discard)
    except CallTimedOut:
        raise EngineUnavailable(
            f"{rung.name} did not load in {seconds:g} s, the limit that LOAD_SECONDS sets"
        ) from None


async def first_speaking(
    load: Callable[[ResumeFrom | None], LoadedEngine[T]], speak: Callable[[T], Awaitable[P]], failure: str
) -> tuple[LoadedEngine[T], P]:
    """The first engine of `load`, which blocks, that also passes `speak`, and the result of
    `speak`.

    speak: has the engine process what a request would; if it raises CosyserveError it has released
    the engine. failure: begins the message. Raises what `load` raises; ModelError if the last
    engine, or one without files of its own, does not speak.
    """
    below: ResumeFrom | None = None
    while True:
        footing = await asyncio.to_thread(load, below)
        try:
            return footing, await speak(footing.engine)
        except CosyserveError as error:
            reason = f"{failure}: {error}"
            if not footing.needs_files:
                raise ModelError(reason) from error
            below = ResumeFrom(footing.rung, footing.refused, reason)
        del footing


def _stepped_over(service: str, rung: str, next_rung: str, reason: str) -> Refusal:
    # Without a GPU nothing is lost by it.
    level = logging.WARNING if has_nvidia_device() else logging.INFO
    log.log(level, "%s: %s does not serve, %s is tried next: %s", service, rung, next_rung, reason)
    return Refusal(rung, without_paths(reason))


class _Rungs:
    """Which engine serves in this process and which were skipped, as of the last load."""

    def __init__(self) -> None:
        self.serving: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        gauge(names.ENGINE_RUNG).watch(self, lambda rungs: _by_rung(rungs.serving))
        gauge(names.ENGINE_RUNGS_REFUSED).watch(self, lambda rungs: _by_rung(rungs.refused))


def _by_rung(values: dict[str, float]) -> list[tuple[Labels, float]]:
    return [({"rung": rung}, value) for rung, value in values.items()]


_RUNGS = _Rungs()


def record_metrics(footing: LoadedEngine[T]) -> None:
    """Record which engine serves and which were skipped."""
    refused = [refusal.rung for refusal in footing.refused]
    _RUNGS.serving = dict.fromkeys(refused, 0.0) | {footing.rung: 1.0}
    _RUNGS.refused = dict.fromkeys(refused, 1.0)


def without_paths(text: str) -> str:
    """Reduce absolute paths to their last part: texts for callers name no directory of this
    machine.
    """
    return _PATH.sub(r"\1", text)
