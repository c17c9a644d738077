"""Scales the stages as KEDA's autoscaler does: by metrics that are some seconds old, up at once and
down only after a while.
"""

import math
from collections import deque

from cosyserve.capacity.scaling import Scaling, raised, wanted
from tools.capacity.fleet.pods import HostPod, LlmPod, Pod, Token2wavPod
from tools.capacity.fleet.stage import Stage
from tools.capacity.timing.pod_clock import PodClock


class Autoscaler:
    """Of one stage. together: another stage whose pods share its GPUs and follow it."""

    def __init__(
        self, stage: Stage[Pod], scaling: Scaling, clock: PodClock, streams_limit: int, together: Stage[Pod] | None
    ) -> None:
        self._stage, self._scaling, self._clock, self._limit = stage, scaling, clock, streams_limit
        self._together = together
        self._lowered_at = -math.inf
        self._value: float | None = None
        """As of the latest scrape."""
        self._wanted: deque[tuple[float, int]] = deque()
        self._busy: dict[Pod, float] = {}
        clock.after(scaling.interval, self._look)

    def _look(self) -> None:
        """Act on what was scraped last, then scrape: so every number is an interval old."""
        now, pods = self._clock.now(), len(self._stage.serving)
        if not self._wanted:
            # As Kubernetes: what there is when it looks first counts as wanted.
            self._wanted.append((now, self._stage.live))
        if pods and self._value is not None:
            self._wanted.append((now, wanted(pods, self._value, self._scaling)))
            while self._wanted[0][0] < now - self._scaling.cooldown:
                self._wanted.popleft()
            # Down to the largest number of the cooldown, up to the present one at once.
            most, present = max(count for _, count in self._wanted), self._stage.live
            count = raised(present, max(self._wanted[-1][1], min(most, present)))
            if count < present and now - self._lowered_at < self._scaling.lowered:
                count = present
            elif count < present:
                count, self._lowered_at = present - 1, now
            self._stage.resize(count)
            if self._together is not None:
                self._together.resize(count)
        self._value = self._measured()
        self._clock.after(self._scaling.interval, self._look)

    @property
    def value(self) -> float:
        """The metric as of the latest scrape; 0 before the first."""
        return self._value or 0.0

    def _measured(self) -> float:
        """The stage's metric now, an average over its serving pods, by the queries of the chart."""
        pods = self._stage.serving
        if not pods:
            return 0.0
        llms = [pod for pod in pods if isinstance(pod, LlmPod)]
        if llms:
            return sum(pod.engine.sentences for pod in llms) / sum(pod.slots for pod in llms)
        decoders = [pod for pod in pods if isinstance(pod, Token2wavPod)]
        if decoders:
            pages = sum(pod.pages_used for pod in decoders) / sum(pod.decoder.pool.count for pod in decoders)
            return max(pages, sum(pod.about_to_run_dry() for pod in decoders) / len(decoders))
        return max(self._processor(pods), sum(pod.streams for pod in pods) / (self._limit * len(pods)))

    def _processor(self, pods: list[Pod]) -> float:
        """Share of their core that the pods used since the last look, on average."""
        before, self._busy = self._busy, {pod: pod.busy_seconds for pod in pods if isinstance(pod, HostPod)}
        used = [busy - before.get(pod, 0.0) for pod, busy in self._busy.items()]
        return sum(used) / (self._scaling.interval * max(len(used), 1))
