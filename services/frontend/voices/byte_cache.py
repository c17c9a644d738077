"""An LRU cache that is limited by its size in bytes."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter

T = TypeVar("T")
_LOOKUPS = counter(names.CACHE_LOOKUPS)


def looked_up(cache: str, *, found: bool) -> None:
    """Count a lookup for a call; one that is being read for another call is found."""
    _LOOKUPS.add(1, cache=cache, result="hit" if found else "miss")


class ByteCache(Generic[T]):
    """Evicts the least recently used items above `most_bytes`. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.RLock()
        self._items: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: str, item: T, size: int) -> None:
        """Cache `item`, which takes `size` bytes. An item larger than the whole cache is not
        cached.
        """
        with self._lock:
            self.drop(key)
            if size > self._most_bytes:
                return
            self._items[key] = (item, size)
            self.bytes_held += size
            while self.bytes_held > self._most_bytes:
                self.drop(next(iter(self._items)))

    def drop(self, key: str) -> None:
        """Remove an item."""
        with self._lock:
            self.bytes_held -= self._items.pop(key, (None, 0))[1]
