"""Keys and values behind what stands first in every sentence of a voice: kept for its next
sentence.
"""

from collections import OrderedDict

from services.llm.engine.kv_cache import SequenceCache
from services.llm.generation.script import Input


class PromptStates:
    """By inputs, so that two voices never meet. The least recently used are dropped when all
    together exceed `limit_bytes`.

    Belongs to one thread.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[tuple[Input, ...], SequenceCache] = OrderedDict()
        self.bytes = 0
        """Memory of all that is kept, at most the limit."""

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, inputs: tuple[Input, ...], cache: SequenceCache) -> bool:
        """Fill an empty cache as `inputs` would, if that is kept."""
        kept = self._entries.get(inputs)
        if kept is None:
            return False
        self._entries.move_to_end(inputs)
        cache.keys[:, :, : kept.length] = kept.keys
        cache.values[:, :, : kept.length] = kept.values
        cache.length = kept.length
        return True

    def keep(self, inputs: tuple[Input, ...], cache: SequenceCache) -> None:
        """Keep a copy of a cache that holds `inputs` and nothing else, unless it alone exceeds the
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
