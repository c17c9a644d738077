"""First sounds of engines that hardly compute: what remains is the way of a request through the
services, and what their code does on it.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import psutil

from bench.field.doors import ADMITTED
from bench.load.http_caller import HttpCaller
from cosyserve.client import AsyncClient
from cosyserve.client.types import STAGES
from cosyserve.host.supervision.supervisor import LocalDeployment

WARM_UP = 40
TEXTS = ("One moment, please.", "How can I help you?", "It will rain today.", "That is all, thank you.")
"""Short, since each is waited for to its end.
"""


@dataclass(frozen=True)
class FirstSounds:
    """One way of asking, one request after the other. p50, p95: milliseconds until the first byte.
    frontend ... vocoder: median milliseconds of the stages, as the summaries say, and between
    admission and first message (`admitted`); 0 where the door reports nothing.
    """

    door: str
    requests: int
    p50: float
    p95: float
    admitted: float
    stages: Mapping[str, float]


async def over_grpc(stack: LocalDeployment, requests: int) -> FirstSounds:
    """By the client of this package."""
    spent: dict[str, list[float]] = {name: [] for name in (*STAGES, ADMITTED)}
    firsts = []
    async with AsyncClient(stack.address) as client:
        for number in range(-WARM_UP, requests):
            begun = time.perf_counter()
            async with client.synthesize(TEXTS[number % len(TEXTS)], seed=number + WARM_UP) as speech:
                await anext(speech)
                first = 1000 * (time.perf_counter() - begun)
                await speech.read()
            if number >= 0 and speech.summary is not None:
                firsts.append(first)
                for name in STAGES:
                    spent[name].append(speech.summary.first_sound[name])
                spent[ADMITTED].append(speech.summary.first_sound_milliseconds)
    medians = {name: round(statistics.median(values), 2) for name, values in spent.items()}
    return _of("grpc", firsts, medians.pop(ADMITTED), medians)


async def over_http(stack: LocalDeployment, requests: int) -> FirstSounds:
    """By POST /v1/audio/speech on one kept connection."""
    assert stack.http is not None
    firsts = []
    async with HttpCaller(stack.http) as caller:
        for number in range(-WARM_UP, requests):
            begun, first = time.perf_counter(), 0.0
            pieces = caller.pieces(TEXTS[number % len(TEXTS)], "pcm", number + WARM_UP)
            async with aclosing(pieces):
                async for _ in pieces:
                    first = first or 1000 * (time.perf_counter() - begun)
            if number >= 0:
                firsts.append(first)
    return _of("http", firsts, 0.0, {})


def cpu_milliseconds(stack: LocalDeployment) -> dict[str, float]:
    """Processor time of each service since it began, with the processes below it."""
    spent = {}
    for child in stack.children:
        if child.pid is not None:
            every = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
            spent[child.name] = 1000 * sum(sum(each.cpu_times()[:2]) for each in every)
    return spent


def _of(door: str, firsts: Sequence[float], admitted: float, stages: Mapping[str, float]) -> FirstSounds:
    p95 = statistics.quantiles(firsts, n=20, method="inclusive")[-1]
    return FirstSounds(door, len(firsts), round(statistics.median(firsts), 2), round(p95, 2), admitted, stages)
