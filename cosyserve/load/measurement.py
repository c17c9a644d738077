"""One load on a server: requests that arrive together or by chance, and what their listeners would
hear.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError, Overloaded
from cosyserve.load.measurement import closed_loop, poisson
from cosyserve.load.player import listen

TEXTS = (
    "Thank you for calling, how can I help you today?",
    "Your parcel left our house on Monday and should be with you by Friday.",
    "One moment please, I am looking at your account.",
    "It will rain until noon, and then the sun comes out.",
    "Could you tell me the number that is printed on the back of the card?",
    "That is a good question, and the answer depends on where you live.",
)
PERCENTILES = (50, 90, 95, 99)
_BACK_OFF_SECONDS = 0.2
"""After a failure, and after a refusal without a hint."""
_LONGEST_SECONDS = 120.0
"""Of one request; one that takes longer has failed."""


@dataclass(frozen=True)
class Load:
    """What arrives.

    streams: callers at once, each asking again when its answer is complete; used when rate is 0.
    rate: requests a second that know nothing of each other. offline: SynthesizeUnary, a whole text
    under full attention, in place of a stream. buffer_seconds: of the player.
    """

    streams: int
    rate: float = 0.0
    seconds: float = 20.0
    offline: bool = False
    voice: str = ""
    texts: tuple[str, ...] = TEXTS
    buffer_seconds: float = 0.04
    first_seed: int = 0


@dataclass
class Outcome:
    """What became of the requests of one load. All times in seconds since the request was sent."""

    first_byte: list[float] = field(default_factory=list)
    first_audible: list[float] = field(default_factory=list)
    """To the moment at which the player, its buffer included, plays the first sample above -40
    dBFS; empty for whole texts.
    """
    complete: list[float] = field(default_factory=list)
    real_time_factor: list[float] = field(default_factory=list)
    """Of each request: seconds to the complete answer for a second of audio."""
    audio_seconds: float = 0.0
    underruns: int = 0
    """Requests whose player ran dry."""
    longest_underrun_seconds: float = 0.0
    refused: int = 0
    failed: int = 0
    messages: set[str] = field(default_factory=set)
    """Of the failures."""
    seconds: float = 0.0
    """That the load lasted."""

    @property
    def completed(self) -> int:
        return len(self.complete)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that is at least as large as `percent` of them (nearest rank)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def as_dict(load: Load, outcome: Outcome) -> dict[str, Any]:
    """For programs; milliseconds, and None where nothing was measured."""

    def milliseconds(values: Sequence[float]) -> dict[str, float | None]:
        found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
        return {name: None if value is None else round(1000 * value, 1) for name, value in found.items()}

    factors = {f"p{percent}": percentile(outcome.real_time_factor, percent) for percent in PERCENTILES}
    return {
        "streams": None if load.rate else load.streams,
        "rate": load.rate or None,
        "offline": load.offline,
        "seconds": round(outcome.seconds, 3),
        "completed": outcome.completed,
        "refused": outcome.refused,
        "failed": outcome.failed,
        "first_byte_milliseconds": milliseconds(outcome.first_byte),
        "first_audible_milliseconds": milliseconds(outcome.first_audible),
        "complete_milliseconds": milliseconds(outcome.complete),
        "real_time_factor": {name: None if value is None else round(value, 4) for name, value in factors.items()},
        "audio_seconds_a_second": round(outcome.audio_seconds / outcome.seconds, 3) if outcome.seconds else None,
        "underruns": outcome.underruns,
        "longest_underrun_milliseconds": round(1000 * outcome.longest_underrun_seconds, 1),
        "messages": sorted(outcome.messages)[:5],
    }


async def measure(client: AsyncClient, load: Load) -> Outcome:
    """Run `load` after a warm-up of one request for each stream (at most eight), which is not
    counted. Raises the error of the warm-up's first request where none of it was answered.
    """
    numbers = itertools.count(load.first_seed)
    warm = [asyncio.create_task(_request(client, load, next(numbers), Outcome())) for _ in range(min(load.streams, 8))]
    results = await asyncio.gather(*warm, return_exceptions=True)
    faults = [result for result in results if isinstance(result, BaseException)]
    if len(faults) == len(results):
        raise faults[0]
    outcome, began = Outcome(), time.monotonic()

    def ask(_: int) -> Awaitable[None]:
        return _counted(client, load, next(numbers), outcome)

    if load.rate:
        await poisson(ask, load.rate, load.seconds, seed=1)
    else:
        await closed_loop(ask, load.streams, load.seconds)
    outcome.seconds = time.monotonic() - began
    return outcome


async def _counted(client: AsyncClient, load: Load, number: int, outcome: Outcome) -> None:
    try:
        await _request(client, load, number, outcome)
    except Overloaded as refusal:
        outcome.refused += 1
        await _back_off(load, refusal.retry_after or _BACK_OFF_SECONDS)
    except (CosyserveError, RuntimeError) as error:
        outcome.failed += 1
        outcome.messages.add(str(error))
        await _back_off(load, _BACK_OFF_SECONDS)


async def _back_off(load: Load, seconds: float) -> None:
    """A caller of a fixed number waits; requests that arrive by chance know nothing of each
    other.
    """
    if not load.rate:
        await asyncio.sleep(min(seconds, load.seconds))


async def _request(client: AsyncClient, load: Load, number: int, outcome: Outcome) -> None:
    """One request with a seed of its own, so that no two are the same work."""
    text, began = load.texts[number % len(load.texts)], time.monotonic()
    if load.offline:
        _, _, summary = await client.synthesize_unary(text, voice=load.voice, seed=number, timeout=_LONGEST_SECONDS)
        seconds = time.monotonic() - began
        first, audible = seconds, None
        audio, dry = summary.audio_seconds, 0.0
        if not audio:
            raise RuntimeError("an answer without audio")
    else:
        speech = client.synthesize(text, voice=load.voice, seed=number, timeout=_LONGEST_SECONDS, resume_seconds=0)
        heard = await listen(speech, buffer_seconds=load.buffer_seconds)
        seconds, first = heard.end, heard.first_sound
        audible = None if heard.first_audible is None else heard.first_audible + load.buffer_seconds
        audio, dry = heard.audio, max((stall.seconds for stall in heard.dry), default=0.0)
    outcome.first_byte.append(first)
    if audible is not None:
        outcome.first_audible.append(audible)
    outcome.complete.append(seconds)
    outcome.real_time_factor.append(seconds / audio)
    outcome.audio_seconds += audio
    outcome.underruns += dry > 0
    outcome.longest_underrun_seconds = max(outcome.longest_underrun_seconds, dry)
