"""Why the words of a sentence have no times, and for how many sentences of a request that is so."""

from dataclasses import dataclass, field
from enum import Enum


class Reason(Enum):
    """The values are the names of MissingWordTimes.Reason of synthesis.proto, in lower case."""

    NO_ALIGNER = "no_aligner"
    """The model has no alignment table, and this server has no aligner."""
    LANGUAGE = "language"
    """The sentence is not English, or too much of it."""
    NOT_ALIGNED = "not_aligned"
    """The sound does not fit the words well enough to say when each is spoken."""
    BUSY = "busy"
    """The times were not known in time."""


class Untimed(Exception):
    """The words of a sentence have no times; it says nothing of the words."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass
class UntimedSentences:
    """The sentences of a request whose words have no times: for each reason the first one and how
    many.
    """

    by_reason: dict[Reason, tuple[int, int]] = field(default_factory=dict)

    def add(self, reason: Reason, sentence: int) -> None:
        first, count = self.by_reason.get(reason, (sentence, 0))
        self.by_reason[reason] = first, count + 1
