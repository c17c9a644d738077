"""Flow state behind a voice's prompt: kept for the next request with the same voice, shared by
those that compute it at the same time.
"""

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

from services.token2wav.flow.state import FlowState


@dataclass(frozen=True)
class PromptCacheStats:
    """Since the start: streams that found their prompt's state and that did not, states dropped for
    room. bytes, states: now.
    """

    hits: int
    misses: int
    evictions: int
    bytes: int
    states: int


class PromptCache:
    """Least recently used states are dropped when all together exceed `limit_bytes`; 0 keeps none.

    A state on its way through the prompt is begun, not kept: it lives for as long as a stream holds
    it, so that streams of one voice that come together compute each block once, and nothing stays
    when all of them hang up in the middle.

    Changed by one thread; any may ask what is in it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept: OrderedDict[str, FlowState] = OrderedDict()
        self._begun: WeakValueDictionary[str, FlowState] = WeakValueDictionary()
        self._hits = self._misses = self._evictions = 0

    @property
    def bytes(self) -> int:
        """Memory of all states kept, at most the limit."""
        return sum(state.bytes for state in list(self._kept.values()))

    @property
    def stats(self) -> PromptCacheStats:
        """Counts so far."""
        return PromptCacheStats(self._hits, self._misses, self._evictions, self.bytes, len(self._kept))

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> FlowState | None:
        """The state kept under `key`; fork it before use. Counts as a hit or a miss."""
        found = self._kept.get(key)
        if found is None:
            self._misses += 1
        else:
            self._hits += 1
            self._kept.move_to_end(key)
        return found

    def further(self, key: str, position: int) -> FlowState | None:
        """The state of `key` that has come furthest, kept or begun, if that is beyond `position`
        tokens; fork it before use.
        """
        found = self._kept.get(key) or self._begun.get(key)
        return found if found is not None and found.position > position else None

    def begin(self, key: str, state: FlowState) -> None:
        """Share `state`, which nobody may change any more, for as long as somebody holds it."""
        self._begun[key] = state

    def put(self, key: str, state: FlowState) -> None:
        """Keep `state`, which nobody may change any more, unless it alone exceeds the limit."""
        if state.bytes > self._limit:
            self.begin(key, state)
            return
        self._kept[key] = state
        while self.bytes > self._limit:
            self._kept.popitem(last=False)
            self._evictions += 1
