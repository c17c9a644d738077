"""Which key gets a place of a full server: each its share, by weight, and no place stays empty for
want of a request that may have it.

The share of a key is the part of the limit that its weight is of the weights of all keys that hold
places, wait for one, or held one a moment ago; keys of a less urgent class do not count. A key may
hold more than its share while others do not use theirs. A place that a key has just left is kept
for it for some seconds, as far as its share goes: a conversation comes back at once, and would
otherwise wait for speech of seconds to end. With one key its share is the limit, and nothing is
kept.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor


@dataclass(frozen=True)
class Share:
    """Whose request it is. key: empty if the server has no keys. priority: 0 is the most urgent
    class.
    """

    key: str = ""
    weight: float = 1.0
    priority: int = 0


NO_KEY = Share()


@dataclass(eq=False)
class Holder:
    """One key with its places."""

    share: Share
    active: int = 0
    waiting: int = 0
    left: deque[tuple[float, int]] = field(default_factory=deque)
    """When places were left, and how many the key held until then: later entries are smaller."""

    def held_since(self, moment: float) -> int:
        """Most places held at once since then."""
        while self.left and self.left[0][0] < moment:
            self.left.popleft()
        return max(self.active, self.left[0][1] if self.left else 0)


class FairShares:
    """kept_seconds: how long a place is kept. now: a monotonic clock, in seconds."""

    def __init__(self, limit: int, kept_seconds: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.kept_seconds = limit, kept_seconds
        self.active = 0
        self._now = now
        self._holders: dict[str, Holder] = {}

    def holder(self, share: Share) -> Holder:
        """The places of this key, with the weight and class that it has now. To be used before the
        next one is asked for: keys without a share are forgotten.
        """
        self._holders = {one.share.key: one for one in self._present()}
        found = self._holders.get(share.key)
        if found is None:
            found = self._holders[share.key] = Holder(share)
        found.share = share
        return found

    def take(self, holder: Holder) -> None:
        """A request of the key holds a place from now on, whether or not there is one."""
        holder.active += 1
        self.active += 1

    def leave(self, holder: Holder) -> None:
        """One place less."""
        while holder.left and holder.left[-1][1] <= holder.active:
            holder.left.pop()
        holder.left.append((self._now(), holder.active))
        holder.active -= 1
        self.active -= 1

    def contended(self, holder: Holder) -> bool:
        """Whether another key has a share at present."""
        return any(other is not holder for other in self._present())

    def places_of(self, holder: Holder) -> int:
        """Its share, in whole places; at least one."""
        return self._places(holder, self._weights(holder))

    def has_room(self, holder: Holder) -> bool:
        """Whether one more request of the key may have a place now."""
        if self.active >= self.limit:
            return False
        weights = self._weights(holder)
        if holder.active < self._places(holder, weights):
            return True
        kept = sum(self._kept(other, weights) for other in self._present() if self._binds(other, holder))
        return self.active + kept < self.limit

    def rank(self, holder: Holder, ahead: int) -> tuple[int, float]:
        """Orders waiting requests, the next one first. ahead: requests of the same key that wait
        before it.
        """
        return holder.share.priority, (holder.active + ahead) / holder.share.weight

    def _binds(self, other: Holder, holder: Holder) -> bool:
        return other is not holder and other.share.priority <= holder.share.priority

    def _kept(self, holder: Holder, weights: Sequence[float]) -> int:
        """Places that are free and kept for the key."""
        used = holder.held_since(self._now() - self.kept_seconds)
        return max(min(used, self._places(holder, weights)) - holder.active, 0)

    def _places(self, holder: Holder, weights: Sequence[float]) -> int:
        rivals = sum(weights[: holder.share.priority + 1])
        return max(floor(self.limit * holder.share.weight / rivals), 1)

    def _weights(self, asking: Holder) -> list[float]:
        """By class, of the keys that have a share and of the one that asks."""
        present = self._present()
        if asking not in present:
            present.append(asking)
        weights = [0.0] * (1 + max(one.share.priority for one in present))
        for one in present:
            weights[one.share.priority] += one.share.weight
        return weights

    def _present(self) -> list[Holder]:
        """Keys that have a share."""
        since = self._now() - self.kept_seconds
        return [one for one in self._holders.values() if one.waiting or one.held_since(since)]
