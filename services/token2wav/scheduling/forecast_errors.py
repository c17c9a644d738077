"""Recent errors of the forecasts of second chunks: the effects of the device, of other processes on
it and of the token stream are measured, not modelled.
"""

from collections import deque

from services.token2wav.scheduling.measurements import bucket

_REMEMBERED = 32
_ENOUGH = 8
"""Number of known errors from which on they alone are used."""
_CAUTION = 0.5
"""Before that, a second chunk is expected to take longer than forecast by at least this share."""


class ForecastErrors:
    """Seconds by which second chunks were later than forecast (negative: earlier), by number of
    streams.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}

    def add(self, streams: int, seconds: float) -> None:
        """Record a chunk that was `seconds` later than forecast while there were `streams`
        streams.
        """
        self._seen.setdefault(bucket(streams), deque(maxlen=_REMEMBERED)).append(seconds)

    def worst(self, streams: int, forecast_seconds: float) -> float:
        """By how much a chunk with this forecast may be late: the largest of the latest errors with
        about as many streams; before there are enough of them, at least a share of the forecast.
        """
        seen = self._seen.get(bucket(streams), deque[float]())
        if len(seen) >= _ENOUGH:
            return max(seen)
        return max([_CAUTION * forecast_seconds, *seen])
