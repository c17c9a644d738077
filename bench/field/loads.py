"""The loads of the benchmark and the parts in which they are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.field.sentences import SENTENCES

HTTP, GRPC = "http", "grpc"
RATES = (1.0, 4.0, 10.0, 20.0, 40.0, 60.0, 80.0)
"""Requests a second."""
HIGH = 20.0
"""Rates from here on are a part of their own."""
FIXED_SECONDS = ("3", "10", "30")
FIXED_RATE, VOICES_RATE = 10.0, 4.0
WARM_SECONDS = 5.0
SLOW_SHARE = 0.3
"""Of the requests, where one a second or fewer come, and of each voice by itself."""


@dataclass(frozen=True)
class Load:
    """Requests that arrive by chance. name: of its row, in its part. door: HTTP or GRPC. rate:
    requests a second. requests, seconds: that are measured at least. kind: of the texts. voices:
    one of them by chance for each request; empty: the server's default. warm: seconds before, at
    the same rate.
    """

    name: str
    door: str
    rate: float
    requests: int
    seconds: float
    voices: tuple[str, ...] = ()
    kind: str = SENTENCES
    warm: float = WARM_SECONDS


@dataclass(frozen=True)
class Group:
    """The loads of one part. cold: nothing that was computed for a voice is kept."""

    name: str
    about: str
    loads: tuple[Load, ...]
    cold: bool = False


@dataclass(frozen=True)
class Amount:
    """How much is measured. requests, seconds: of each load, at least. warm: before each."""

    rates: tuple[float, ...] = RATES
    requests: int = 200
    seconds: float = 20.0
    warm: float = WARM_SECONDS

    def of(self, rate: float) -> int:
        """Requests at `rate`."""
        return self.requests if rate > 1 else self.slow

    @property
    def slow(self) -> int:
        return max(1, round(SLOW_SHARE * self.requests))


def groups(amount: Amount, voices: Sequence[str]) -> list[Group]:
    """Every part that has a load, in the order of a whole run. voices: of different lengths of
    their prompts.
    """
    all_voices = tuple(voices)
    found = []
    for door in (HTTP, GRPC):
        for name, rates in (
            ("low", [rate for rate in amount.rates if rate < HIGH]),
            ("high", [rate for rate in amount.rates if rate >= HIGH]),
        ):
            loads = tuple(
                Load(f"{rate:g}", door, rate, amount.of(rate), amount.seconds, all_voices, warm=amount.warm)
                for rate in rates
            )
            about = f"{', '.join(load.name for load in loads)} requests a second over {door}"
            found.append(Group(f"{door}-{name}", about, loads))
    fixed = tuple(
        Load(f"{kind} s", HTTP, FIXED_RATE, amount.requests, amount.seconds, all_voices, kind, amount.warm)
        for kind in FIXED_SECONDS
    )
    found.append(Group("lengths", f"texts of {', '.join(FIXED_SECONDS)} s, {FIXED_RATE:g} a second", fixed))
    for name, cold in (("warm", False), ("cold", True)):
        # Only the number of requests counts here: each voice has a load of its own. Over gRPC the
        # server reports what the time was spent on.
        each = tuple(
            Load(voice, GRPC, VOICES_RATE, amount.slow, 0.0, (voice,), warm=amount.warm) for voice in all_voices
        )
        about = f"each voice by itself, {name}, {VOICES_RATE:g} requests a second"
        found.append(Group(f"voices-{name}", about, each, cold))
    return [group for group in found if group.loads]
