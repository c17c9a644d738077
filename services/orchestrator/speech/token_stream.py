"""The speech tokens of one sentence while they are generated: one task writes them, another reads
those that are spoken, and reads them again after a failure.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from cosyserve.errors import SpeechFault
from cosyserve.generations.generation import SilentRuns, SilentTokens
from cosyserve.tasks import Changes
from services.orchestrator.speech.utterance import Sentence


@dataclass(frozen=True)
class GenerationTiming:
    """How long the generation of a sentence took, in milliseconds."""

    prefill: float
    """Including the wait for the engine."""
    first_hop: float
    """From the end of prefill to the first message."""
    decode: float
    text_starts: tuple[int, ...] = ()
    """For each text id the speech token with which it begins; empty if unknown."""


class TokenStream:
    """Append-only, so that a replica that takes over in mid-sentence can get all tokens from the
    start. Bounded by the longest sentence of the LLM.
    """

    def __init__(self, sentence: Sentence, seed: int, attempt: int = 0) -> None:
        self.sentence = sentence
        self.seed = seed
        """The seed of this attempt, for all stages."""
        self.attempt = attempt
        self.fault: SpeechFault | None = None
        """Set if the sentence must not be spoken."""
        self.tokens: list[int] = []
        """All that the LLM generated: another replica of it continues after these."""
        self._silent_runs = SilentRuns()
        self.has_text_starts: bool | None = None
        """Whether `timing` will have text_starts; None while that is unknown."""
        self.timing: GenerationTiming | None = None
        """Set with the last token."""
        self.on_tokens: Callable[[], None] = lambda: None
        """Called whenever tokens arrive."""
        self._changes = Changes()

    def extend(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.on_tokens()
        self.tokens.extend(tokens)
        self._silent_runs.extend(tokens)
        self._changes.notify()

    @property
    def spoken(self) -> Sequence[int]:
        """The tokens that the decoder gets: all but the rest of long silences."""
        return self._silent_runs.spoken

    def spoken_before(self, place: int) -> int:
        """How many of the first `place` tokens are spoken: the position among the spoken ones."""
        return self._silent_runs.spoken_before(place)

    def accept(self, *, has_text_starts: bool, silent: SilentTokens | None = None) -> None:
        """Generation has begun. silent: the tokens of which long runs are not spoken; another
        replica that continues the sentence names the same.
        """
        self._silent_runs.silent = silent
        self.has_text_starts = has_text_starts
        self._changes.notify()

    async def accepted(self) -> None:
        """Wait until generation has begun, or there is a fault."""
        await self._changes.wait_for(lambda: self.has_text_starts is not None or self.tokens or self._over)

    def finish(self, timing: GenerationTiming) -> None:
        self.timing = timing
        self._changes.notify()

    def fail(self, fault: SpeechFault) -> None:
        """Raise `fault` to all present and future readers."""
        self.fault = fault
        self._changes.notify()

    @property
    def _over(self) -> bool:
        return self.timing is not None or self.fault is not None

    async def judged(self) -> None:
        """Wait until the word times of the sentence are known, which is with the last token; return
        at once if there will be none. Raises the fault of the sentence.
        """
        await self._changes.wait_for(lambda: self._over or self.has_text_starts is False)
        if self.fault is not None:
            raise self.fault

    async def settled(self) -> None:
        """Wait until the last token or a fault."""
        await self._changes.wait_for(lambda: self._over)

    async def read(self) -> AsyncIterator[list[int]]:
        """All tokens that are spoken, from the first one, in pieces as they become available.
        Raises the fault of the sentence.
        """
        position = 0
        while True:
            if self.fault is not None:
                raise self.fault
            if position < len(self.spoken):
                piece = list(self.spoken[position:])
                position += len(piece)
                yield piece
            elif self.timing is not None:
                return
            else:
                await self._changes.wait()
