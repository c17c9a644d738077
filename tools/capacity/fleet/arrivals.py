"""Ways to ask: listeners who come by chance, listeners who stay, and callers that ask again at
once.
"""

import random
from collections.abc import Sequence

from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.request import SERVED, Request

Curve = Sequence[tuple[float, float]]
"""Seconds since the start, and the share of the load from then on, along straight lines."""


def share_at(curve: Curve, seconds: float) -> float:
    """The share of the load at a moment; before the first point and after the last as there."""
    before = curve[0]
    for point in curve:
        if point[0] > seconds:
            part = (seconds - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1.0
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


def by_chance(fleet: Fleet, streams: float, seconds: float, curve: Curve = ((0.0, 1.0),), seed: int = 5) -> None:
    """Poisson arrivals for `seconds` from now on, at a rate with which `streams` listen at once on
    average where the share is 1. Source of the thinning: Lewis and Shedler, 1979.
    """
    dice, begun = random.Random(seed), fleet.clock.now()
    mean = sum(fleet.speech.seconds) / 2
    most = max(share for _, share in curve)
    rate = streams * most / mean

    def come() -> None:
        at = fleet.clock.now() - begun
        if at >= seconds:
            return
        if dice.random() * most < share_at(curve, at):
            fleet.ask()
        fleet.clock.after(dice.expovariate(rate), come)

    if rate > 0:
        fleet.clock.after(dice.expovariate(rate), come)


def listening(fleet: Fleet, streams: int, seconds: float, seed: int = 5) -> None:
    """So many listeners at once, each of whom hears its answer to the end and then asks again; the
    first ones come one after the other while one sentence lasts, as in `bench.serving`.
    """
    dice, end = random.Random(seed), fleet.clock.now() + seconds

    def ask() -> None:
        if fleet.clock.now() < end:
            fleet.ask(then)

    def then(request: Request, how: str, again: float) -> None:
        left = request.player.left(fleet.clock.now() - request.asked) if how == SERVED else max(again, 0.2)
        fleet.clock.after(left, ask)

    for _ in range(streams):
        fleet.clock.after(dice.random() * sum(fleet.speech.seconds) / 2, ask)


def closed_loop(fleet: Fleet, streams: int, seconds: float) -> None:
    """So many callers, each asking again as soon as its answer is complete, or when a refusal said
    so.
    """
    end = fleet.clock.now() + seconds

    def ask() -> None:
        if fleet.clock.now() < end:
            fleet.ask(then)

    def then(request: Request, how: str, again: float) -> None:
        fleet.clock.after(0.0 if how == SERVED else max(again, 0.2), ask)

    for _ in range(streams):
        ask()
