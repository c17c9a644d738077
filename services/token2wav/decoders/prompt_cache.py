"""Cache of flow states at the end of voices' prompts. Later requests with the same voice reuse
them; concurrent requests share the computation.
"""

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

from services.token2wav.flow.state import FlowState


@dataclass(frozen=True)
class PromptCacheStats:
    """hits, misses, evictions: since the start. bytes, states: current values."""

    hits: int
    misses: int
    evictions: int
    bytes: int
    states: int


class PromptCache:
    """An LRU cache that evicts when the states together exceed `limit_bytes`; 0 caches nothing.

    A state that is still inside the prompt is in progress and not yet cached: it lives only while a
    stream refers to it. So streams of one voice that start together compute each block once, and
    nothing remains if all of them are cancelled early.

    Modified by one thread; any thread may query it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._cached: OrderedDict[str, FlowState] = OrderedDict()
        self._in_progress: WeakValueDictionary[str, FlowState] = WeakValueDictionary()
        self._hits = self._misses = self._evictions = 0

    @property
    def bytes(self) -> int:
        """Bytes of all cached states, at most the limit."""
        return sum(state.bytes for state in list(self._cached.values()))

    @property
    def stats(self) -> PromptCacheStats:
        """Current statistics."""
        return PromptCacheStats(self._hits, self._misses, self._evictions, self.bytes, len(self._cached))

    def __contains__(self, key: str) -> bool:
        return key in self._cached

    def get(self, key: str) -> FlowState | None:
        """The state cached under `key`; fork it before use. Counts as a hit or a miss."""
        state = self._cached.get(key)
        if state is None:
            self._misses += 1
        else:
            self._hits += 1
            self._cached.move_to_end(key)
        return state

    def further(self, key: str, position: int) -> FlowState | None:
        """The most advanced state of `key`, cached or in progress, if it is beyond `position`
        tokens; fork it before use.
        """
        state = self._cached.get(key) or self._in_progress.get(key)
        return state if state is not None and state.position > position else None

    def begin(self, key: str, state: FlowState) -> None:
        """Share `state`, which must not be modified any more, while a stream refers to it."""
        self._in_progress[key] = state

    def put(self, key: str, state: FlowState) -> None:
        """Cache `state`, which must not be modified any more, unless it alone exceeds the limit."""
        if state.bytes > self._limit:
            self.begin(key, state)
            return
        self._cached[key] = state
        while self.bytes > self._limit:
            self._cached.popitem(last=False)
            self._evictions += 1
