"""The pods of one stage: which gets the next piece of work, and how their number changes."""

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from tools.capacity.fleet.pods import Pod
from tools.capacity.timing.pod_clock import PodClock

P = TypeVar("P", bound=Pod)


class Stage(Generic[P]):
    """make: a pod, by its number. start_seconds: until a new one serves."""

    def __init__(self, name: str, clock: PodClock, make: Callable[[int], P], start_seconds: float) -> None:
        self.name, self.start_seconds = name, start_seconds
        self._clock, self._make = clock, make
        self.pods: list[P] = []
        self._made = 0

    @property
    def serving(self) -> list[P]:
        """Those that get new work."""
        return [pod for pod in self.pods if pod.serving]

    def pick(self, avoid: Collection[Pod] = ()) -> P | None:
        """The least busy one that serves, the oldest of several; as
        `cosyserve.rpc.replicas.ReplicaSet.pick`."""
        able = [pod for pod in self.pods if pod.serving and pod not in avoid]
        return min(able, key=lambda pod: pod.streams, default=None)

    def add(self, seconds: float | None = None) -> P:
        """A new pod, which serves in `seconds` (None: `start_seconds`)."""
        pod = self._make(self._made)
        self._made += 1
        self.pods.append(pod)
        seconds = self.start_seconds if seconds is None else seconds
        if seconds:
            self._clock.after(seconds, lambda: self._serves(pod))
        else:
            pod.serving = True
        return pod

    def _serves(self, pod: P) -> None:
        if not pod.gone:
            pod.serving = True

    def resize(self, count: int) -> None:
        """Begin or drain pods until so many serve or start. A pod that drains ends with its last
        stream; those that have not started go first.
        """
        live = [pod for pod in self.pods if not pod.draining]
        for _ in range(count - len(live)):
            self.add()
        leaving = sorted(live, key=lambda pod: (pod.serving, pod.streams, -pod.number))[: max(len(live) - count, 0)]
        for pod in leaving:
            pod.serving, pod.draining = False, True
            self.released(pod)

    @property
    def live(self) -> int:
        """Pods that serve or start, without those that drain."""
        return sum(not pod.draining for pod in self.pods)

    def released(self, pod: P) -> None:
        """A piece of work of the pod is over; one that drains may end now."""
        if pod.draining and not pod.streams and pod in self.pods:
            self.pods.remove(pod)
            pod.end()

    def lose(self) -> P | None:
        """The busiest pod that serves is gone at once, and a new one begins to start; None if none
        serves.
        """
        victim = max(self.serving, key=lambda pod: pod.streams, default=None)
        if victim is not None:
            self.pods.remove(victim)
            victim.end()
            self.add()
        return victim
