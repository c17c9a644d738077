"""Who is let in: so many sentences run, so many wait behind them, and as many text streams as both
together are open.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from cosyserve.errors import Overloaded
from services.llm.settings import LlmSettings


class Admission:
    """Belongs to one event loop. `running` is held while an engine works for a sentence, never
    while text is awaited.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._most = settings.max_sequences + settings.max_waiting
        self._retry_after = settings.retry_after_seconds
        self._in = {False: 0, True: 0}
        self.running = asyncio.Semaphore(settings.max_sequences)

    @property
    def admitted(self) -> int:
        """Sentences that are in."""
        return sum(self._in.values())

    @contextlib.contextmanager
    def entered(self, *, text_arrives: bool) -> Iterator[None]:
        """While the block runs a sentence is in. Raises Overloaded, with the hint when to come
        back.
        """
        if self._in[text_arrives] >= self._most:
            what = "text streams are open" if text_arrives else "sentences are in"
            raise Overloaded(
                f"the speech-token engine is full: {self._in[text_arrives]} {what}, no more are taken",
                retry_after=self._retry_after,
            )
        self._in[text_arrives] += 1
        try:
            yield
        finally:
            self._in[text_arrives] -= 1
