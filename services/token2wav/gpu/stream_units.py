"""How a stream is cut into units of 25 tokens, and which of its units each of them sees."""

from dataclasses import dataclass

from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.past import KEPT_FRAMES
from services.token2wav.inputs.chunking import Grid

NEWEST = KEPT_FRAMES // CHUNK_FRAMES
"""Blocks before its own that a block sees besides the prompt, where the past is bounded."""


@dataclass(frozen=True)
class StreamUnits:
    """Of a stream with a prompt of so many tokens.

    whole_prompt: the prompt is one block, whose units all see each other. So that units behind it
    begin on its grid, and all but one are full, the first unit is the short one: it begins with
    `skipped` tokens of padding.
    """

    prompt: int
    whole_prompt: bool = False

    @property
    def grid(self) -> Grid:
        """Where blocks end."""
        return Grid(self.prompt, self.whole_prompt)

    @property
    def skipped(self) -> int:
        """Tokens of padding in the first unit."""
        return -self.prompt % CHUNK_TOKENS if self.whole_prompt else 0

    @property
    def of_prompt(self) -> int:
        """Units of a prompt that is one block."""
        return (self.prompt + self.skipped) // CHUNK_TOKENS if self.whole_prompt else 0

    def count(self, until: int) -> int:
        """Units up to a position in tokens, the last one complete or not."""
        return -(-(until + self.skipped) // CHUNK_TOKENS) if until else 0

    def end(self, count: int) -> int:
        """The position behind so many units, all complete."""
        return CHUNK_TOKENS * count - self.skipped if count else 0

    def tokens(self, at: int, until: int) -> range:
        """Positions of a unit's tokens, when the stream ends at `until`."""
        return range(self.end(at), min(self.end(at + 1), until))

    def lookahead(self, end: int) -> slice:
        """Which tokens a complete unit sees that ends there; see `Grid.lookahead`. Units inside the
        prompt see the next ones.
        """
        return self.grid.lookahead(end) if self.of_prompt else slice(end, end + LOOKAHEAD_TOKENS)

    def seen(self, at: int) -> tuple[list[int], int]:
        """The units that the estimator sees from unit `at`, and which of those it is itself."""
        prompt = list(range(self.of_prompt))
        if at < self.of_prompt:
            return prompt, at
        first = max(at - NEWEST, self.of_prompt) if self.whole_prompt else 0
        return [*prompt, *range(first, at + 1)], -1

    def forgotten(self, count: int) -> range:
        """The units that none sees any more behind so many."""
        return range(self.of_prompt, count - NEWEST) if self.whole_prompt else range(0)

    def spoken(self, at: int, tokens: int) -> slice:
        """Which of unit `at`'s 50 frames lie behind the prompt; so many of its tokens are real."""
        first = MEL_FRAMES_PER_TOKEN * (self.prompt + self.skipped) - CHUNK_FRAMES * at
        padding = 0 if at else self.skipped
        return slice(max(first, 0), MEL_FRAMES_PER_TOKEN * (padding + tokens))
