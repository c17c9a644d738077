"""How a stage is scaled: the rule of the HorizontalPodAutoscaler, which KEDA sets up, with the
numbers of the chart.
"""

import math
from dataclasses import dataclass

TOLERANCE = 0.1
"""Kubernetes changes nothing while the measured value is this close to the wanted one."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """threshold: of the metric at which a pod is as busy as planned. least, most: pods. interval:
    seconds between two looks; the metric is as old as the last one. cooldown: seconds for which a
    larger number that was wanted before stays. lowered: seconds between two pods that are taken
    away.
    """

    threshold: float
    least: int
    most: int
    interval: float = 15.0
    cooldown: float = 600.0
    lowered: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"the threshold is {self.threshold:g}; it must be above 0")
        if not 1 <= self.least <= self.most:
            raise ValueError(f"{self.least} to {self.most} pods: the first must be at least 1 and not above the second")


def wanted(pods: int, value: float, scaling: Scaling) -> int:
    """Pods at which the metric, an average over `pods`, would be at its threshold. Source: the
    algorithm of the Kubernetes HorizontalPodAutoscaler.
    """
    ratio = value / scaling.threshold
    count = pods if abs(ratio - 1.0) <= TOLERANCE else math.ceil(pods * ratio)
    return min(max(count, scaling.least), scaling.most)


def raised(present: int, count: int) -> int:
    """What of `count` the next look may begin: twice as many pods as there are, or two more."""
    return min(count, max(2 * present, present + 2))
