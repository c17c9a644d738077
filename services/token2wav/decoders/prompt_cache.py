"""A cache of the flow states that have just processed a voice prompt. Later requests with the same
voice fork the cached state; concurrent requests share its computation.
"""

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

from services.token2wav.flow.flow_state import FlowState


@dataclass(frozen=True)
class PromptCacheStats:
    """hits, misses: results of `PromptCache.get` since the start. evictions: states removed by the
    byte limit since the start. bytes, states: what is cached now.
    """

    hits: int
    misses: int
    evictions: int
    bytes: int
    states: int


class PromptCache:
    """An LRU cache by voice prompt. It evicts states when all of them together exceed `limit_bytes`
    bytes; with a limit of 0 it caches nothing.

    A state that has not reached the end of the prompt is in progress: the cache holds only a weak
    reference to it, so the state lives while a stream refers to it. Streams of one voice that start
    together therefore compute each block once, and no state remains if all of them are cancelled
    before the end of the prompt.

    Not thread-safe: one thread calls `get`, `further`, `begin` and `put`. Other threads may read
    `bytes` and `stats`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._cached: OrderedDict[str, FlowState] = OrderedDict()
        self._in_progress: WeakValueDictionary[str, FlowState] = WeakValueDictionary()
        self._hits = self._misses = self._evictions = 0

    @property
    def bytes(self) -> int:
        """Bytes of all cached states; at most the limit, except while `put` evicts."""
        # The copy allows another thread to modify the cache meanwhile.
        return sum(state.bytes for state in list(self._cached.values()))

    @property
    def stats(self) -> PromptCacheStats:
        """Current statistics."""
        return PromptCacheStats(self._hits, self._misses, self._evictions, self.bytes, len(self._cached))

    def __contains__(self, key: str) -> bool:
        return key in self._cached

    def get(self, key: str) -> FlowState | None:
        """The state cached under `key`, None without one; the caller forks it before use. Counts as
        a hit or a miss.
        """
        state = self._cached.get(key)
        if state is None:
            self._misses += 1
        else:
            self._hits += 1
            self._cached.move_to_end(key)
        return state

    def further(self, key: str, position: int) -> FlowState | None:
        """The cached state of `key`, or else its latest state in progress, if it has processed more
        than `position` tokens; None otherwise. The caller forks it before use. Not counted as a hit
        or a miss.
        """
        state = self._cached.get(key) or self._in_progress.get(key)
        return state if state is not None and state.position > position else None

    def begin(self, key: str, state: FlowState) -> None:
        """Offer `state` as in progress for as long as a stream refers to it. The caller must not
        modify it afterwards.
        """
        self._in_progress[key] = state

    def put(self, key: str, state: FlowState) -> None:
        """Cache `state` and evict others if necessary. A state that alone exceeds the limit is
        treated as in `begin`. The caller must not modify the state afterwards.
        """
        if state.bytes > self._limit:
            self.begin(key, state)
            return
        self._cached[key] = state
        while self.bytes > self._limit:
            self._cached.popitem(last=False)
            self._evictions += 1
