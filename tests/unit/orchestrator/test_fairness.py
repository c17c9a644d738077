"""A key with 50 clients beside one with 2 on a server of 8 places, on a clock of its own: the
second key's first sound, and what becomes of the first one's requests.
"""

import asyncio
import random
import statistics
from dataclasses import dataclass, field

import pytest

from cosyserve.errors import Overloaded
from services.orchestrator.load_control.admission import Admission
from services.orchestrator.load_control.fair_shares import Share
from services.orchestrator.load_control.wait_estimate import TEXT
from tests.stacks.virtual_time import run

PLACES, FIRST_SOUND, MOST_TIMES = 8, 0.25, 1.5
MINUTES = 10


@dataclass
class Heard:
    """Of one key: seconds to each first sound, requests that were spoken, and refusals."""

    firsts: list[float] = field(default_factory=list)
    spoken: int = 0
    asked: int = 0
    refused: int = 0
    served_after: list[float] = field(default_factory=list)
    """From the first attempt to the place."""


async def client(admission: Admission, share: Share, heard: Heard, draws: random.Random, pause: float) -> None:
    """Asks, hears a sound after 0.25 s and the end after some more, comes back when it is refused,
    and asks again.
    """
    clock = asyncio.get_running_loop().time
    await asyncio.sleep(draws.uniform(0, 2))
    while clock() < 60 * MINUTES:
        size = draws.randint(40, 160)
        heard.asked += 1
        begun = clock()
        while True:
            attempt = clock()
            try:
                async with admission.admit_in_turn(share, TEXT, size):
                    heard.served_after.append(clock() - begun)
                    await asyncio.sleep(FIRST_SOUND)
                    heard.firsts.append(clock() - attempt)
                    await asyncio.sleep(0.02 * size)
                    heard.spoken += 1
                    break
            except Overloaded as error:
                heard.refused += 1
                await asyncio.sleep(error.retry_after or 1.0)
        await asyncio.sleep(draws.uniform(0, pause))


async def _together(clients: dict[Share, int], wait: float, kept: float) -> dict[str, Heard]:
    clock = asyncio.get_running_loop().time
    admission = Admission(PLACES, now=clock, wait_seconds=wait, kept_seconds=kept)
    heard = {share.key: Heard() for share in clients}
    async with asyncio.TaskGroup() as group:
        for share, count in clients.items():
            for number in range(count):
                draws = random.Random(f"{share.key}{number}")
                group.create_task(client(admission, share, heard[share.key], draws, 4.0 if count < 10 else 0.0))
    assert admission.active == 0
    return heard


def together(clients: dict[Share, int], wait: float = 1.0, kept: float = 10.0) -> dict[str, Heard]:
    return run(_together(clients, wait, kept))


MANY, FEW = Share("many"), Share("few")


def test_the_first_sound_of_a_key_with_few_clients_beside_one_with_many() -> None:
    alone = statistics.median(together({FEW: 2})["few"].firsts)
    heard = together({MANY: 50, FEW: 2})
    few, many = heard["few"], heard["many"]
    assert few.refused == 0
    assert statistics.median(few.firsts) <= MOST_TIMES * alone
    assert statistics.quantiles(few.firsts, n=20)[-1] <= MOST_TIMES * alone
    # Nothing is lost: every request was spoken in the end.
    assert (many.spoken, few.spoken) == (many.asked, few.asked)
    assert many.refused > many.spoken


def test_no_place_is_left_empty_for_long() -> None:
    """What the many speak beside the few is what is left of the server, nearly."""
    alone = together({MANY: 50})["many"].spoken
    heard = together({MANY: 50, FEW: 2})
    assert heard["many"].spoken + heard["few"].spoken >= 0.85 * alone


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0)])
def test_keys_that_both_want_everything_get_their_weights(weights: tuple[float, float]) -> None:
    shares = Share("a", weights[0]), Share("b", weights[1])
    heard = together(dict.fromkeys(shares, 25))
    ratio = heard["a"].spoken / heard["b"].spoken
    assert 0.7 * weights[0] / weights[1] <= ratio <= 1.4 * weights[0] / weights[1]


def test_batch_does_not_keep_interactive_requests_waiting() -> None:
    alone = statistics.median(together({FEW: 2})["few"].firsts)
    few = together({Share("many", priority=1): 50, FEW: 6})["few"]
    assert statistics.median(few.firsts) <= MOST_TIMES * alone


def test_with_one_key_the_server_is_as_it_is_without_keys() -> None:
    """Whatever the settings of the shares: the same requests are refused."""
    without, one = together({Share(""): 20}, 0.0, 0.0)[""], together({Share(""): 20}, 5.0, 30.0)[""]
    assert without == one
