"""A short soak: random hang-ups at the real services, every utterance that is heard out is the one
its request names.
"""

from pathlib import Path

import pytest

from bench.load.flat_memory import Memory
from bench.soak import soak


async def test_a_short_soak_loses_nothing() -> None:
    result = await soak(Path("models/demo"), requests=24, warm_up=8, clients=4, stretch=8, seed=2)
    assert result.heard_out + result.hung_up == 32
    assert min(result.heard_out, result.hung_up) >= 4
    assert set(result.memory.slopes) == {"frontend.0", "llm.0", "token2wav.0", "orchestrator.0"}


@pytest.mark.parametrize(("slope", "flat"), [(0.9, True), (1.1, False)])
def test_growth_is_seen(slope: float, flat: bool) -> None:
    assert Memory({"llm.0": 0.2, "token2wav.0": slope}, {}).flat == flat


def test_the_slope_is_per_hundred_requests() -> None:
    samples = {"grows": [(0, 50.0), (50, 51.0), (100, 52.0)], "flat": [(0, 9.0), (50, 9.0), (100, 9.0)]}
    memory = Memory.of(samples, 100)
    assert memory.slopes == {"grows": pytest.approx(2.0), "flat": pytest.approx(0.0)}
    assert memory.text("100 requests").splitlines()[0].split()[1:6] == ["50.0", "MB", "->", "52.0", "MB"]
