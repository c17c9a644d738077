"""How wrong the forecasts of second pieces were lately: what a device, its other users and the
token stream do to them is not modelled.
"""

from collections import deque

from services.token2wav.scheduling.step_costs import bucket

_REMEMBERED = 32
_ENOUGH = 8
"""Forecasts that have to be known before they alone are gone by."""
_CAUTION = 0.5
"""Until then a second piece is expected to take longer by this share than forecast."""


class ForecastErrors:
    """Seconds by which second pieces were made later than forecast, negative when earlier, by how
    many streams there were.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}

    def add(self, streams: int, seconds: float) -> None:
        """One that was made so much later than forecast while there were so many streams."""
        self._seen.setdefault(bucket(streams), deque(maxlen=_REMEMBERED)).append(seconds)

    def worst(self, streams: int, forecast_seconds: float) -> float:
        """By how much a piece that is forecast to take so long may be late: the largest of the
        latest errors with about so many streams; before there are enough of them at least a share
        of the forecast."""
        seen = self._seen.get(bucket(streams), deque[float]())
        if len(seen) >= _ENOUGH:
            return max(seen)
        return max([_CAUTION * forecast_seconds, *seen])
