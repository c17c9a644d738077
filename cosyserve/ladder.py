"""The ladder: engines from the fastest to the one that always runs. What cannot serve here is stepped over, once, with its reason.

auto: first rung that serves        strict: the first rung, or none
"""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cosyserve import telemetry
from cosyserve.errors import ModelError, SettingsError
from cosyserve.gpu_facts import gpu_is_there

log = logging.getLogger(__name__)
T = TypeVar("T")
_RUNG = telemetry.meter.create_gauge("cosyserve.engine.rung", "1", "1 for the rung that serves (service, rung)")
_REFUSED = telemetry.meter.create_gauge("cosyserve.engine.rungs_refused", "1", "1 for each rung that was stepped over (service, rung)")
_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,()'\"]+/)*([^\s/:;,()'\"]+)/?")


class Unserved(SettingsError):
    """An engine cannot serve on this machine, with this installation or these settings; the message says why and what would change it."""


@dataclass(frozen=True)
class Rung(Generic[T]):
    """name: as GetInfo tells it. load: blocks; raises Unserved, or another SettingsError, where this engine cannot serve. needs_files: made
    of files that a command builds, so that a ModelError, too, is a reason to step down."""

    name: str
    load: Callable[[], T]
    needs_files: bool = False


@dataclass(frozen=True)
class Refusal:
    """A rung that was stepped over. reason: without paths."""

    rung: str
    reason: str


@dataclass(frozen=True)
class Footing(Generic[T]):
    """Where the descent ended."""

    engine: T
    rung: str
    refused: tuple[Refusal, ...] = ()


def descend(service: str, rungs: Sequence[Rung[T]], *, strict: bool, setting: str) -> Footing[T]:
    """Load the first of at least one rung that serves; blocks. setting: name of the variable behind `strict`.

    Raises what the last rung raises, and with strict Unserved when the first one cannot serve.
    """
    refused: list[Refusal] = []
    for rung, below in zip(rungs, [*rungs[1:], None], strict=True):
        try:
            engine = rung.load()
        except (SettingsError, ModelError) as error:
            if below is None or (isinstance(error, ModelError) and not rung.needs_files):
                raise
            if strict:
                raise Unserved(f"{setting} is true and {rung.name} cannot serve: {error}") from error
            # A machine without a GPU loses nothing by it.
            level = logging.WARNING if gpu_is_there() else logging.INFO
            log.log(level, "%s: %s does not serve, %s is tried next: %s", service, rung.name, below.name, error)
            refused.append(Refusal(rung.name, without_paths(str(error))))
            continue
        footing = Footing(engine, rung.name, tuple(refused))
        log.info("%s: %s serves", service, rung.name)
        tell(service, footing)
        return footing
    raise ValueError("a ladder has at least one rung")


def tell(service: str, footing: Footing[T]) -> None:
    """Metrics of the descent."""
    _RUNG.set(1, {"service": service, "rung": footing.rung})
    for refusal in footing.refused:
        _REFUSED.set(1, {"service": service, "rung": refusal.rung})


def without_paths(text: str) -> str:
    """Absolute paths are left with their last part: what is told to callers names no directory of this machine."""
    return _PATH.sub(r"\1", text)
