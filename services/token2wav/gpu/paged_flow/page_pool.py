"""Who owns which page of the pool: free pages, reference counts, and the pages behind voices'
prompts that streams share.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.token2wav.decoders.prompt_cache import PromptCacheStats
from services.token2wav.gpu.paged_flow.unit_table import DUMMY_PAGE


class Pages:
    """Pages 1 .. count - 1; page 0 is nobody's. A page that the last owner releases is free at
    once, for work that is queued later.

    Streams end on any thread, so all methods may be called from any.
    """

    def __init__(self, count: int) -> None:
        self.count = count - 1
        self._free = deque(page for page in range(count) if page != DUMMY_PAGE)
        self._owners = [0] * count
        self._kept: set[int] = set()
        # Reentrant: the collector may run while pages are taken, and a state that it frees gives
        # its own back in the same thread.
        self._lock = threading.RLock()

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` pages with one owner each, None when there are not so many."""
        with self._lock:
            if count > len(self._free):
                return None
            taken = [self._free.popleft() for _ in range(count)]
            for page in taken:
                self._owners[page] = 1
            return taken

    def share(self, pages: Sequence[int]) -> None:
        """One more owner of each."""
        with self._lock:
            for page in pages:
                self._owners[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """One owner less of each."""
        with self._lock:
            for page in pages:
                self._owners[page] -= 1
                if self._owners[page] == 0:
                    self._free.append(page)

    def keep(self, pages: Sequence[int]) -> None:
        """The prompt cache is one more owner of each, and answers for their memory."""
        with self._lock:
            self.share(pages)
            self._kept.update(pages)

    def drop(self, pages: Sequence[int]) -> None:
        """The prompt cache owns them no longer."""
        with self._lock:
            self._kept.difference_update(pages)
            self.release(pages)

    def part(self, pages: Sequence[int]) -> float:
        """How many pages one of their owners answers for: those that the prompt cache keeps count
        there, others with their owners in equal parts."""
        with self._lock:
            return sum(1.0 / self._owners[page] for page in pages if page not in self._kept)

    def sole(self, pages: Sequence[int]) -> int:
        """How many of them have one owner, and would be free without it."""
        with self._lock:
            return sum(self._owners[page] == 1 for page in pages)


@dataclass(frozen=True)
class PromptPages:
    """Complete blocks of a voice's prompt. speaker: the projected embedding, float32 [80].
    conditions: the prompt's mel in blocks, see `PagedState`."""

    pages: tuple[int, ...]
    speaker: Tensor
    conditions: Tensor


class PagedPrompts:
    """Least recently used prompts leave when all together have more than `most` pages, or when
    pages are needed; 0 keeps none.

    Changed by the engine's thread; any may ask what is in it.
    """

    def __init__(self, pages: Pages, most: int, page_bytes: int) -> None:
        self._pages, self._most, self._page_bytes = pages, most, page_bytes
        self._kept: OrderedDict[str, PromptPages] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    @property
    def stats(self) -> PromptCacheStats:
        """Counts so far."""
        held = sum(len(prompt.pages) for prompt in list(self._kept.values()))
        return PromptCacheStats(self._hits, self._misses, self._evictions, held * self._page_bytes, len(self._kept))

    def get(self, key: str, *, count: bool = True) -> PromptPages | None:
        """What is kept under `key`; its pages must be shared before anything is put. count: as a
        hit or a miss.
        """
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        if count:
            self._hits, self._misses = self._hits + (found is not None), self._misses + (found is None)
        return found

    def put(self, key: str, prompt: PromptPages) -> None:
        """Keep it, as one more owner of its pages, unless it alone exceeds the limit or is kept
        already.
        """
        if len(prompt.pages) > self._most or key in self._kept:
            return
        self._pages.keep(prompt.pages)
        self._kept[key] = prompt
        while sum(len(each.pages) for each in self._kept.values()) > self._most:
            self.evict()

    @property
    def evictable(self) -> int:
        """Pages that are free when all prompts have left: those that no stream speaks from."""
        return sum(self._pages.sole(prompt.pages) for prompt in self._kept.values())

    def evict(self) -> bool:
        """Drop the least recently used one; False when there is none."""
        if not self._kept:
            return False
        _, prompt = self._kept.popitem(last=False)
        self._pages.drop(prompt.pages)
        self._evictions += 1
        return True
