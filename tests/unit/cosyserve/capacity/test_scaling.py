"""The rule of the HorizontalPodAutoscaler."""

import pytest

from cosyserve.capacity.scaling import Scaling, raised, wanted

HALF = Scaling(threshold=0.5, least=2, most=10)


@pytest.mark.parametrize(
    ("pods", "value", "count"),
    [(4, 0.5, 4), (4, 0.54, 4), (4, 0.46, 4), (4, 0.75, 6), (4, 1.0, 8), (4, 0.25, 2), (4, 0.1, 2), (8, 1.0, 10)],
)
def test_pods_follow_the_ratio_but_for_the_tolerance(pods: int, value: float, count: int) -> None:
    assert wanted(pods, value, HALF) == count


def test_up_by_twice_or_by_two_at_once() -> None:
    assert [raised(1, 9), raised(4, 9), raised(4, 5), raised(4, 3)] == [3, 8, 5, 3]


@pytest.mark.parametrize(("threshold", "least", "most"), [(0.0, 1, 2), (float("inf"), 1, 2), (0.5, 0, 2), (0.5, 3, 2)])
def test_what_cannot_scale_is_refused(threshold: float, least: int, most: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        Scaling(threshold=threshold, least=least, most=most)
