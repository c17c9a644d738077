"""When which request is due. The times are drawn before the first one is sent, so that no answer
can delay a request.
"""

import random
from dataclasses import dataclass

from bench.field.loads import Load
from bench.field.sentences import texts

LEAST_WARM = 4
"""Fewest requests before the measured ones."""


@dataclass(frozen=True)
class Request:
    """at: seconds after the load begins. counted: whether it is measured."""

    number: int
    at: float
    text: str
    voice: str
    seed: int
    counted: bool


@dataclass(frozen=True)
class Schedule:
    """requests: by time. begin, end: seconds; requests due between them are counted."""

    requests: tuple[Request, ...]
    begin: float
    end: float


def schedule(load: Load, seed: int) -> Schedule:
    """Poisson arrivals: those of the warm-up, then at least the requests and seconds of the load.
    The same load and seed give the same requests, whatever their door is.
    """
    draw = random.Random(f"{seed} {load.rate} {load.kind}")
    order = list(texts(load.kind))
    draw.shuffle(order)
    found: list[Request] = []
    at, begin, counted = 0.0, 0.0, 0
    while True:
        at += draw.expovariate(load.rate)
        if not begin and at >= load.warm and len(found) >= max(LEAST_WARM, len(load.voices)):
            begin = at
        if begin and counted >= load.requests and at >= begin + load.seconds:
            return Schedule(tuple(found), begin, at)
        number = len(found)
        # Every voice is in the warm-up, so that no first request to one is measured.
        voice = (
            (load.voices[number % len(load.voices)] if not begin else draw.choice(load.voices)) if load.voices else ""
        )
        found.append(Request(number, at, order[number % len(order)], voice, number, bool(begin)))
        counted += bool(begin)
