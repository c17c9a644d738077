"""What a stack that has just come up is measured by: the same request sounds the same, on a GPU
from the second on.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.host.starting import measurement as measuring


def sound(seed: int) -> bytes:
    """One second."""
    return np.random.default_rng(seed).integers(-9000, 9000, 24_000).astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("gpus", "heard", "fault"),
    [
        ([], [1, 1], None),
        ([], [1, 2], "the same request with the same seed gave other samples"),
        (["H200"], [1, 1], None),
        (["H200"], [1, 2, 2], None),
        (["H200"], [1, 2, 3], "the same request with the same seed gave other samples"),
    ],
)
async def test_samples_are_the_same_at_once_or_on_a_gpu_from_the_second_request_on(
    gpus: list[str], heard: list[int], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(SimpleNamespace(seconds=1.0), sound(seed)) for seed in heard]
    left = iter(answers)

    async def speak(client: Any, text: str) -> Any:
        return next(left)

    monkeypatch.setattr(measuring, "_speak", speak)
    monkeypatch.setattr(measuring, "visible_gpus", lambda: gpus)
    measured = await measuring.measure(SimpleNamespace())  # type: ignore[arg-type]
    assert measured.fault == fault
    assert next(left, None) is None
    assert (measured.cold, measured.warm) == (answers[0][0], answers[-1][0])
