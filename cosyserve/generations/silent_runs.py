"""Leaves out what is too long of the silences that a speech-token model generates (compatibility
specification of CosyVoice3, section 3.6): of each run of silent tokens the first ones are spoken.

The state is the length of the run at the end, so the tokens may come in any pieces.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from cosyserve.generations.generation import SilentTokens


@dataclass
class SilentRuns:
    """The tokens of one sentence, of which some are not spoken."""

    silent: SilentTokens | None = None
    """None: every token is spoken. Set before the first token comes."""
    spoken: list[int] = field(default_factory=list)
    """The tokens that are spoken, in order."""
    run: int = 0
    """How many tokens at the end are silent, spoken or not."""
    _generated: int = 0
    _left_out: list[int] = field(default_factory=list)
    """Positions, among all tokens, of those that are not spoken."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Append the next tokens."""
        for token in tokens:
            is_silent = self.silent is not None and token in self.silent.ids
            self.run = self.run + 1 if is_silent else 0
            if self.silent is not None and self.run > self.silent.longest_run:
                self._left_out.append(self._generated)
            else:
                self.spoken.append(token)
            self._generated += 1

    def spoken_before(self, place: int) -> int:
        """How many of the first `place` tokens are spoken."""
        return place - bisect_left(self._left_out, place)
