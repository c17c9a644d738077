"""One load on a server: requests that arrive together or by chance, and what their listeners would
hear.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError, Overloaded
from cosyserve.load.player import Heard, listen

Ask = Callable[[int], Coroutine[Any, Any, None]]


async def closed_loop(ask: Ask, streams: int, seconds: float, first: int = 0, spread: float = 0.0) -> int:
    """`streams` askers for `seconds`, each asking again as soon as its answer is complete. Returns
    the number of requests.

    Those under way at the end are waited for. ask: gets the number of the request, from `first`.
    spread: seconds before `seconds` within which the askers begin, one after the other.
    """
    end, number = time.monotonic() + spread + seconds, first

    async def asker(place: int) -> None:
        nonlocal number
        await asyncio.sleep(spread * place / streams)
        while time.monotonic() < end:
            number += 1
            await ask(number - 1)

    async with asyncio.TaskGroup() as group:
        for place in range(streams):
            group.create_task(asker(place))
    return number - first


async def poisson(ask: Ask, per_second: float, seconds: float, seed: int, first: int = 0, least: int = 1) -> int:
    """Requests that know nothing of each other, `per_second` on average, for `seconds` and until
    there are `least`. Returns their number; all are waited for."""
    begin, at, number = time.monotonic(), 0.0, first
    rng = random.Random(seed)  # noqa: S311 - arrivals that can be repeated, no secret
    async with asyncio.TaskGroup() as group:
        while True:
            at += rng.expovariate(per_second)
            # A moment that is over already is not skipped: a late request meets the work of the
            # others, as it would have.
            await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
            if at >= seconds and number - first >= least:
                return number - first
            group.create_task(ask(number))
            number += 1


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


@dataclass(frozen=True)
class Refusal:
    """seconds: from the request to its refusal. retry_after: what the server asked to wait."""

    seconds: float
    retry_after: float


@dataclass
class Outcome:
    """What became of the requests of one load. failures: messages. seconds: that the load lasted.
    All times in seconds since the request was sent.
    """

    heard: list[Heard] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    async def count(self, answer: Awaitable[Heard]) -> Heard | Exception:
        """Wait for the answer of a request and note what became of it: the answer, or the error
        with which the server refused it or failed.
        """
        began = time.monotonic()
        try:
            heard = await answer
            if not heard.audio:
                raise RuntimeError("an answer without audio")
        except Overloaded as refusal:
            self.refusals.append(Refusal(time.monotonic() - began, back_off(refusal)))
            return refusal
        except (CosyserveError, RuntimeError) as error:
            self.failures.append(str(error))
            return error
        self.heard.append(heard)
        return heard

    @property
    def first_byte(self) -> list[float]:
        return [one.first_sound for one in self.heard]

    @property
    def first_audible(self) -> list[float]:
        """To the moment at which the player, its buffer included, plays the first sample above -40
        dBFS; empty for whole texts.
        """
        return [one.first_audible for one in self.heard if one.first_audible is not None]

    @property
    def complete(self) -> list[float]:
        return [one.end for one in self.heard]

    @property
    def real_time_factor(self) -> list[float]:
        """Of each request: seconds to the complete answer for a second of audio."""
        return [one.real_time_factor for one in self.heard]

    @property
    def audio_seconds(self) -> float:
        return sum(one.audio for one in self.heard)

    @property
    def underruns(self) -> int:
        """Requests whose player ran dry."""
        return sum(one.gaps > 0 for one in self.heard)

    @property
    def longest_underrun_seconds(self) -> float:
        return max((stall.seconds for one in self.heard for stall in one.dry), default=0.0)


def back_off(error: Exception) -> float:
    """Seconds that a caller waits after a refusal or a failure before it asks again."""
    return getattr(error, "retry_after", None) or _BACK_OFF_SECONDS


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that is at least as large as `percent` of them (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else None


def as_dict(load: Load, outcome: Outcome) -> dict[str, Any]:
    """For programs; milliseconds, and None where nothing was measured."""

    def percentiles(values: Sequence[float], factor: int, digits: int) -> dict[str, float | None]:
        found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
        return {name: None if value is None else round(factor * value, digits) for name, value in found.items()}

    return {
        "streams": None if load.rate else load.streams,
        "rate": load.rate or None,
        "offline": load.offline,
        "seconds": round(outcome.seconds, 3),
        "completed": len(outcome.heard),
        "refused": len(outcome.refusals),
        "failed": len(outcome.failures),
        "first_byte_milliseconds": percentiles(outcome.first_byte, 1000, 1),
        "first_audible_milliseconds": percentiles(outcome.first_audible, 1000, 1),
        "complete_milliseconds": percentiles(outcome.complete, 1000, 1),
        "real_time_factor": percentiles(outcome.real_time_factor, 1, 4),
        "audio_seconds_a_second": round(outcome.audio_seconds / outcome.seconds, 3) if outcome.seconds else None,
        "underruns": outcome.underruns,
        "longest_underrun_milliseconds": round(1000 * outcome.longest_underrun_seconds, 1),
        "messages": sorted(set(outcome.failures))[:5],
    }


async def measure(client: AsyncClient, load: Load) -> Outcome:
    """Run `load` after a warm-up of one request for each stream (at most eight), which is not
    counted. Raises the error of the warm-up's first request where none of it was answered.
    """
    numbers = itertools.count(load.first_seed)
    warm = Outcome()
    answers = await asyncio.gather(
        *(warm.count(_request(client, load, next(numbers))) for _ in range(min(load.streams, 8)))
    )
    if not warm.heard:
        raise next(answer for answer in answers if isinstance(answer, Exception))
    outcome, began = Outcome(), time.monotonic()

    async def ask(_: int) -> None:
        answer = await outcome.count(_request(client, load, next(numbers)))
        # Requests that arrive by chance know nothing of each other.
        if isinstance(answer, Exception) and not load.rate:
            await asyncio.sleep(min(back_off(answer), load.seconds))

    if load.rate:
        await poisson(ask, load.rate, load.seconds, seed=1)
    else:
        await closed_loop(ask, load.streams, load.seconds)
    outcome.seconds = time.monotonic() - began
    return outcome


async def _request(client: AsyncClient, load: Load, number: int) -> Heard:
    """One request with a seed of its own, so that no two are the same work."""
    text = load.texts[number % len(load.texts)]
    if not load.offline:
        speech = client.synthesize(text, voice=load.voice, seed=number, timeout=_LONGEST_SECONDS, resume_seconds=0)
        return await listen(speech, load.buffer_seconds)
    began = time.monotonic()
    _, header, summary = await client.synthesize_unary(text, voice=load.voice, seed=number, timeout=_LONGEST_SECONDS)
    seconds = time.monotonic() - began
    return Heard(seconds, seconds, summary.audio_seconds, header, summary)
