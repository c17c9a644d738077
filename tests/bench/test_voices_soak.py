"""The short form of `make soak`'s second half: voices from many hands stay whole."""

from pathlib import Path

from bench.voices_soak import soak

DEMO = Path(__file__).parents[2] / "models" / "demo"


async def test_sixty_operations_from_eight_clients() -> None:
    result = await soak(DEMO, 60, 8, seed=2)
    assert result.faults == []
    assert result.left == []
    assert sum(result.done.values()) == 60
    assert result.done["create ok"] > 5
