"""The spans of a hop: flow and vocoder of its steps, and the times between in which it waited."""

import time
from collections.abc import Sequence

from cosyserve.telemetry import Timing
from services.token2wav.decoders.interface import Decoded

_REPORTED_SECONDS = 0.001
"""Waits that are longer get a span of their own."""


def decode_timings(hop: int, decoded: Decoded) -> list[Timing]:
    """The time spans of flow and vocoder in one step of hop number `hop`."""
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {
        "hop": hop,
        "frames": decoded.frames,
        "samples": int(decoded.samples.size),
    }
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]


class HopTimings:
    """Of one stream; used under the batcher's lock."""

    def __init__(self) -> None:
        self._complete_ns = 0
        self._computed_ns = 0

    def tokens_complete(self) -> None:
        """The tokens of the next hop have arrived."""
        self._complete_ns = time.time_ns()

    def of(self, hop: int, parts: Sequence[Decoded]) -> list[Timing]:
        """The spans of a hop that is finished. parts: the results of its steps, which may have
        begun before its tokens were complete.

        `token2wav.queue` is when it could be computed and was not: the engine worked for other
        streams, or the reader had not taken the hops before.
        """
        free_ns, waits = max(self._complete_ns, self._computed_ns), list[Timing]()
        for part in parts:
            begin = part.flow_ns[0]
            if free_ns and begin - free_ns > 1e9 * _REPORTED_SECONDS:
                waits.append(Timing("token2wav.queue", free_ns, begin, {"hop": hop}))
            free_ns = max(free_ns, (part.vocoder_ns or part.flow_ns)[1])
        self._computed_ns = free_ns
        return [timing for part in parts for timing in decode_timings(hop, part)] + waits


def hold_timings(hop: int, seconds: float) -> list[Timing]:
    """The span of a hop that was held back for `seconds` until now; none for a short time."""
    if seconds <= _REPORTED_SECONDS:
        return []
    end = time.time_ns()
    return [Timing("token2wav.hold", end - int(1e9 * seconds), end, {"hop": hop})]
