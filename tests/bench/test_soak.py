"""A short soak: random hang-ups at the real services, every utterance that is heard out is the one
its request names.
"""

from pathlib import Path

import pytest

from bench.load.flat_memory import slopes_by_hundred
from bench.soak import SoakResult, soak


async def test_a_short_soak_loses_nothing() -> None:
    result = await soak(Path("models/demo"), requests=24, warm_up=8, clients=4, stretch=8, seed=2)
    assert result.heard_out + result.hung_up == 32
    assert min(result.heard_out, result.hung_up) >= 4
    assert set(result.slopes) == {"frontend.0", "llm.0", "token2wav.0", "orchestrator.0"}


def test_growth_is_seen() -> None:
    def result(slope: float) -> SoakResult:
        return SoakResult(1000, 500, 500, 1.0, {"llm.0": 0.2, "token2wav.0": slope}, {})

    assert result(0.9).flat
    assert not result(1.1).flat


def test_the_slope_is_per_hundred_requests() -> None:
    samples = {"grows": [(0, 50.0), (50, 51.0), (100, 52.0)], "flat": [(0, 9.0), (50, 9.0), (100, 9.0)]}
    assert slopes_by_hundred(samples) == {"grows": pytest.approx(2.0), "flat": pytest.approx(0.0)}
