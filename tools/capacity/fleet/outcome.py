"""What became of the requests: by itself, over time, and drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cosyserve.load.measurement import percentile
from cosyserve.load.player import Player
from tools.capacity.fleet.layout import STAGES
from tools.panels import Line, Panel, drawing


@dataclass
class Period:
    """Some seconds of the run. refused, failed: requests. replicas: pods that serve, by stage, at
    its end. streams: requests that are being answered at its end. served requests count where they
    were asked.
    """

    at: float
    arrived: int = 0
    served: int = 0
    refused: int = 0
    failed: int = 0
    gap_free: int = 0
    audio: float = 0.0
    first_sounds: list[float] = field(default_factory=list)
    streams: int = 0
    replicas: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def gap_free_share(self) -> float | None:
        """Of those that were served."""
        return self.gap_free / self.served if self.served else None


class Outcome:
    """period: seconds of each. Requests asked before `counted_from` are not counted."""

    def __init__(self, period: float = 10.0) -> None:
        self._period = period
        self.counted_from = 0.0
        self.periods: list[Period] = []
        self.stalls: list[float] = []
        self.resumed = 0
        """Streams that went on at another pod."""

    def at(self, seconds: float) -> Period | None:
        """The period of this moment; None before what is counted."""
        if seconds < self.counted_from:
            return None
        number = int((seconds - self.counted_from) / self._period)
        while len(self.periods) <= number:
            self.periods.append(Period(self.counted_from + self._period * len(self.periods)))
        return self.periods[number]

    def served(self, asked: float, player: Player) -> None:
        """A request was answered to its end."""
        period = self.at(asked)
        if period is None or player.first_sound is None:
            return
        period.served += 1
        period.gap_free += not player.gaps
        period.audio += player.audio
        period.first_sounds.append(player.first_sound)
        if player.gaps:
            self.stalls.append(player.stalls)

    @property
    def arrived(self) -> int:
        return sum(one.arrived for one in self.periods)

    @property
    def answered(self) -> int:
        """Requests that were served."""
        return sum(one.served for one in self.periods)

    @property
    def refused(self) -> int:
        return sum(one.refused for one in self.periods)

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.periods)

    @property
    def gap_free(self) -> float:
        """Share of the served requests whose player never ran dry; 0 when none was served."""
        return sum(one.gap_free for one in self.periods) / max(self.answered, 1)

    @property
    def audio(self) -> float:
        """Seconds of sound."""
        return sum(one.audio for one in self.periods)

    def first_sound(self, percent: float) -> float | None:
        """Seconds, as a percentile."""
        return percentile([seconds for one in self.periods for seconds in one.first_sounds], percent)


def of_all(periods: Sequence[Period], percent: float) -> list[float | None]:
    """The percentile of the first sound of each period, in seconds."""
    return [percentile(one.first_sounds, percent) for one in periods]


def panels(periods: Sequence[Period]) -> list[Panel]:
    """What there is to see of a run."""
    percentiles = [Line(f"p{percent}", _milliseconds(of_all(periods, percent))) for percent in (50, 95, 99)]
    shares = [None if (one := period.gap_free_share) is None else 100 * one for period in periods]
    least = min([share for share in shares if share is not None], default=100.0)
    return [
        Panel(
            "requests in the period, and streams at its end",
            [Line("requests", [one.arrived for one in periods]), Line("streams", [one.streams for one in periods])],
        ),
        Panel(
            "pods that serve",
            [Line(name, [one.replicas.get(name, 0) for one in periods], steps=True) for name in STAGES],
        ),
        Panel("players without a gap, %", [Line("gap-free", shares)], least=min(least - 1.0, 99.0)),
        Panel("first sound, ms", percentiles),
        Panel(
            "requests refused, failed",
            [Line("refused", [one.refused for one in periods]), Line("failed", [one.failed for one in periods])],
        ),
    ]


def _milliseconds(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else 1000 * value for value in values]


def svg(title: str, periods: Sequence[Period]) -> str:
    """Load, pods, players without a gap, first sound and refusals. Raises ValueError for a run
    without periods.
    """
    return drawing(title, [period.at for period in periods], panels(periods))
