"""Brown-out: near its limit the server serves requests with less haste before it refuses any.

The requests that take the last places (a share of the limit) get a longer first hop: their sound
begins later, and then more of it is there, so the engines may take longer for the next piece. Where
audio is cut changes no sample of the continuous profile, the only one this is done to, and a
request that says itself how its first hop should be keeps that. A request that allows fewer Euler
steps gets the fewest that it allows; that does change samples, so it is never done without being
asked for.

A limit of so few places that the share is less than one has no such places.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from services.orchestrator.load_control.entrance import Occupancy
from services.orchestrator.speech.utterance import Utterance

_DEFAULT_FIRST_HOP = 1


class BrownOut:
    """share: of the places of the limit in effect. first_hop_tokens: of the first hop, at least."""

    def __init__(self, share: float, first_hop_tokens: int) -> None:
        self._share, self._first_hop_tokens = share, first_hop_tokens
        self._active = 0
        gauge(names.BROWNOUT_ACTIVE).watch(self, lambda one: [({}, one._active)])

    @contextlib.contextmanager
    def applied(self, utterance: Utterance, places: Occupancy, *, streams: bool) -> Iterator[Utterance]:
        """The utterance as it is spoken while the block runs; it has been admitted. streams:
        whether it is spoken in hops whose cuts are free.
        """
        if not streams or not self._is_last(places):
            yield utterance
            return
        first_hop = utterance.first_hop_tokens
        if first_hop == _DEFAULT_FIRST_HOP:
            first_hop = self._first_hop_tokens
        self._active += 1
        try:
            yield replace(
                utterance,
                first_hop_tokens=first_hop,
                preferred_euler_steps=utterance.least_euler_steps,
                browned_out=True,
            )
        finally:
            self._active -= 1

    def _is_last(self, places: Occupancy) -> bool:
        return places.active > places.limit - int(self._share * places.limit)
