"""Admission control: limits for running sentences, waiting sentences and open text streams."""

import asyncio
import contextlib
from collections.abc import Iterator

from cosyserve.errors import Overloaded
from services.llm.settings import LlmSettings


class Admission:
    """Used by one event loop. A sentence holds `running` while the engine works for it, and not
    while it waits for text. As many text streams as running and waiting sentences together may be
    open.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._most = settings.max_sequences + settings.max_waiting
        self._retry_after = settings.retry_after_seconds
        self._admitted = {False: 0, True: 0}
        self.running = asyncio.Semaphore(settings.max_sequences)

    @property
    def admitted(self) -> int:
        """Number of admitted sentences."""
        return sum(self._admitted.values())

    @contextlib.contextmanager
    def admit(self, *, text_arrives: bool) -> Iterator[None]:
        """Admit a sentence for the duration of the block. Raises Overloaded with a retry hint."""
        if self._admitted[text_arrives] >= self._most:
            what = "text streams are open" if text_arrives else "sentences are admitted"
            raise Overloaded(
                f"the speech-token engine is full: {self._admitted[text_arrives]} {what}, no more are accepted",
                retry_after=self._retry_after,
            )
        self._admitted[text_arrives] += 1
        try:
            yield
        finally:
            self._admitted[text_arrives] -= 1
