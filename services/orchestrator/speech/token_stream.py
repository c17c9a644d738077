"""The speech tokens of one sentence while they are being made: written by one task, read by
another, read again after a failure.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from cosyserve.errors import SpeechFault
from services.orchestrator.speech.utterance import OpenSentence, Sentence


@dataclass(frozen=True)
class GenerationTiming:
    """What it took to make a sentence's tokens, in milliseconds."""

    prefill: float
    """Waiting for the engine included."""
    first_hop: float
    """From the end of prefill to the first message."""
    decode: float
    text_starts: tuple[int, ...] = ()
    """For each text id the speech token with which it begins; empty when that is not known."""


class TokenStream:
    """Append-only, so that a replica that takes over in mid-sentence can be told everything from
    the start. Bounded by the LLM's longest sentence."""

    def __init__(self, sentence: Sentence | OpenSentence, seed: int, attempt: int = 0) -> None:
        self.sentence = sentence
        self.seed = seed
        """Of this attempt, for all stages."""
        self.attempt = attempt
        self.fault: SpeechFault | None = None
        """Set when what is being made must not be spoken."""
        self.tokens: list[int] = []
        self.tells_starts: bool | None = None
        """Whether `timing` will have text_starts; None while that is not known."""
        self.timing: GenerationTiming | None = None
        """Set when the last token is there."""
        self._changed = asyncio.Event()

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)
        self._wake()

    def accept(self, *, tells_starts: bool) -> None:
        """Generation begins."""
        self.tells_starts = tells_starts
        self._wake()

    def finish(self, timing: GenerationTiming) -> None:
        self.timing = timing
        self._wake()

    def fail(self, fault: SpeechFault) -> None:
        """Whoever reads, or comes to read, gets `fault`."""
        self.fault = fault
        self._wake()

    async def judged(self) -> None:
        """Wait until all is known that the words' times tell: until the last token is there, not at
        all where there will be none. Raises the fault that ended the tokens."""
        while self.timing is None and self.fault is None and self.tells_starts is not False:
            await self._changed.wait()
        if self.fault is not None:
            raise self.fault

    async def settled(self) -> None:
        """Wait until the last token is there or a fault has ended them."""
        while self.timing is None and self.fault is None:
            await self._changed.wait()

    async def read(self) -> AsyncIterator[list[int]]:
        """All tokens from the first one, in the pieces in which they are found. Raises the fault
        that ended them.
        """
        position = 0
        while True:
            if self.fault is not None:
                raise self.fault
            if position < len(self.tokens):
                piece = self.tokens[position:]
                position = len(self.tokens)
                yield piece
            elif self.timing is not None:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
