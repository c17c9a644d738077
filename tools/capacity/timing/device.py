"""The GPU on which engines work: whether another one works on it now, and how much longer that
makes a piece of work.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cosyserve.capacity.profile import EngineProfile


@dataclass(eq=False)
class Device:
    """jitter: by which share work takes longer than measured, on average; never less."""

    profile: EngineProfile
    dice: random.Random
    jitter: float = 0.1
    decoding: bool = False
    """Whether token2wav works."""
    writing: bool = False
    """Whether the speech-token LLM works."""
    on_change: list[Callable[[], None]] = field(default_factory=list)
    """Called when token2wav begins or ends a step."""

    def varied(self, seconds: float) -> float:
        """As it comes."""
        return seconds * (1.0 + self.jitter * self.dice.expovariate(1.0)) if self.jitter else seconds

    def decodes(self, *, now: bool) -> None:
        """token2wav begins or ends a step."""
        self.decoding = now
        for call in self.on_change:
            call()
