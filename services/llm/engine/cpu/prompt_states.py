"""A cache of the keys and values of voice prompts, with which every sentence of a voice begins."""

from collections import OrderedDict

from services.llm.engine.kv_cache import SequenceCache
from services.llm.generation.script import Input


class PromptStates:
    """The key is the tuple of inputs, so that two voices never share an entry. The least recently
    used entries are evicted when all together exceed `limit_bytes`.

    Not thread-safe.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[tuple[Input, ...], SequenceCache] = OrderedDict()
        self.bytes = 0
        """Memory of all entries, at most the limit."""

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, inputs: tuple[Input, ...], cache: SequenceCache) -> bool:
        """Fill an empty cache from the entry for `inputs`; False where there is none."""
        entry = self._entries.get(inputs)
        if entry is None:
            return False
        self._entries.move_to_end(inputs)
        cache.keys[:, :, : entry.length] = entry.keys
        cache.values[:, :, : entry.length] = entry.values
        cache.length = entry.length
        return True

    def store(self, inputs: tuple[Input, ...], cache: SequenceCache) -> None:
        """Store a copy of a cache that holds exactly `inputs`, unless it alone exceeds the
        limit.
        """
        filled = slice(0, cache.length)
        size = _bytes(cache) * cache.length // cache.capacity
        if size > self._limit:
            return
        while self.bytes + size > self._limit:
            self.bytes -= _bytes(self._entries.popitem(last=False)[1])
        self._entries[inputs] = SequenceCache(
            cache.keys[:, :, filled].clone(), cache.values[:, :, filled].clone(), cache.length
        )
        self.bytes += size


def _bytes(cache: SequenceCache) -> int:
    return cache.keys.nbytes + cache.values.nbytes
