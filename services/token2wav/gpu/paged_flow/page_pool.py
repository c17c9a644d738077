"""Ownership of the pool's pages: free pages, reference counts, and the pages of prompts that
streams share.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.token2wav.decoders.prompt_cache import PromptCacheStats
from services.token2wav.gpu.paged_flow.unit_table import DUMMY_PAGE


class Pages:
    """Pages 1 .. count - 1; page 0 is a dummy page. A page that its last owner releases is free at
    once, for work that is queued later.

    Streams end on any thread, so all methods may be called from any thread.
    """

    def __init__(self, count: int) -> None:
        self.count = count - 1
        self._free = deque(page for page in range(count) if page != DUMMY_PAGE)
        self._owners = [0] * count
        self._cached: set[int] = set()
        # Reentrant, because the garbage collector may run while pages are taken; a state that it
        # frees then releases its pages in the same thread.
        self._lock = threading.RLock()

    @property
    def free(self) -> int:
        """Pages without an owner."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Pages that streams hold: not free, and not only in the prompt cache."""
        with self._lock:
            kept = sum(self._owners[page] == 1 for page in self._cached)
            return self.count - len(self._free) - kept

    def take(self, count: int) -> list[int] | None:
        """`count` pages with one owner each, None if there are fewer."""
        with self._lock:
            if count > len(self._free):
                return None
            taken = [self._free.popleft() for _ in range(count)]
            for page in taken:
                self._owners[page] = 1
            return taken

    def share(self, pages: Sequence[int]) -> None:
        """Add an owner to each."""
        with self._lock:
            for page in pages:
                self._owners[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Remove an owner from each."""
        with self._lock:
            for page in pages:
                self._owners[page] -= 1
                if self._owners[page] == 0:
                    self._free.append(page)

    def keep(self, pages: Sequence[int]) -> None:
        """The prompt cache becomes an owner of each, and their memory is counted there."""
        with self._lock:
            self.share(pages)
            self._cached.update(pages)

    def drop(self, pages: Sequence[int]) -> None:
        """The prompt cache is no longer an owner."""
        with self._lock:
            self._cached.difference_update(pages)
            self.release(pages)

    def part(self, pages: Sequence[int]) -> float:
        """How many pages are counted for one of their owners: pages that the prompt cache owns are
        counted there, others in equal parts for their owners.
        """
        with self._lock:
            return sum(1.0 / self._owners[page] for page in pages if page not in self._cached)

    def sole(self, pages: Sequence[int]) -> int:
        """How many of them have a single owner and would be free without it."""
        with self._lock:
            return sum(self._owners[page] == 1 for page in pages)


@dataclass(frozen=True)
class PromptPages:
    """Complete blocks of a voice's prompt. speaker: the projected embedding, float32 [80].
    conditions: the prompt's mel in blocks, fronts: further pages, see `PagedState`.
    """

    pages: tuple[int, ...]
    speaker: Tensor
    conditions: Tensor
    fronts: tuple[int, ...] = ()

    @property
    def held(self) -> tuple[int, ...]:
        """All pages."""
        return self.pages + self.fronts


class PagedPrompts:
    """An LRU cache of prompts that evicts when they have more than `most` pages together, or when
    pages are needed; 0 caches none.

    Modified by the engine's thread; any thread may query it.
    """

    def __init__(self, pages: Pages, most: int, page_bytes: int) -> None:
        self._pages, self._most, self._page_bytes = pages, most, page_bytes
        self._cached: OrderedDict[str, PromptPages] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    def __contains__(self, key: str) -> bool:
        return key in self._cached

    @property
    def stats(self) -> PromptCacheStats:
        """Current statistics."""
        held = sum(len(prompt.held) for prompt in list(self._cached.values()))
        return PromptCacheStats(self._hits, self._misses, self._evictions, held * self._page_bytes, len(self._cached))

    def get(self, key: str, *, count: bool = True) -> PromptPages | None:
        """The prompt cached under `key`; its pages must be shared before anything is put. count: as
        a hit or a miss.
        """
        prompt = self._cached.get(key)
        if prompt is not None:
            self._cached.move_to_end(key)
        if count:
            self._hits, self._misses = self._hits + (prompt is not None), self._misses + (prompt is None)
        return prompt

    def put(self, key: str, prompt: PromptPages) -> None:
        """Cache it, as an additional owner of its pages, unless it alone exceeds the limit or is
        cached already.
        """
        if len(prompt.held) > self._most or key in self._cached:
            return
        self._pages.keep(prompt.held)
        self._cached[key] = prompt
        while sum(len(each.held) for each in self._cached.values()) > self._most:
            self.evict()

    @property
    def evictable(self) -> int:
        """Pages that become free when all prompts are evicted: those that no stream uses."""
        return sum(self._pages.sole(prompt.held) for prompt in self._cached.values())

    def evict(self) -> bool:
        """Evict the least recently used prompt; False if there is none."""
        if not self._cached:
            return False
        _, prompt = self._cached.popitem(last=False)
        self._pages.drop(prompt.held)
        self._evictions += 1
        return True
