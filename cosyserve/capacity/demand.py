"""What is asked of a deployment, in requests, tokens and grid blocks a second."""

import math
from dataclasses import dataclass

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, TOKENS_PER_SECOND


@dataclass(frozen=True, kw_only=True)
class Demand:
    """streams: listeners at once, each of whom hears without a pause. slo: seconds within which 95
    % of the requests sound. sentence: seconds of each. prompt_tokens: of the voice, 25 a second, as
    the flow gets them: without what is cut. prompt_positions: of the LLM before the first token,
    text and voice. hold_back_tokens: of sound that the vocoder keeps back until more follow.
    """

    streams: int
    slo: float
    sentence: float = 3.1
    prompt_tokens: int = 87
    prompt_positions: int = 130
    hold_back_tokens: int = COSYVOICE2.hold_back_tokens

    @property
    def requests(self) -> float:
        """A second, of one stream."""
        return 1.0 / self.sentence

    @property
    def tokens(self) -> int:
        """Of a sentence."""
        return math.ceil(self.sentence * TOKENS_PER_SECOND)

    @property
    def _kept_blocks(self) -> int:
        """Of the prompt, which token2wav keeps."""
        return max(self.prompt_tokens - LOOKAHEAD_TOKENS, 0) // CHUNK_TOKENS

    @property
    def blocks(self) -> float:
        """Grid blocks of a sentence behind what is kept of the prompt; its last block is half full
        on average.
        """
        return (self.prompt_tokens + self.tokens) / CHUNK_TOKENS - self._kept_blocks + 0.5

    @property
    def behind(self) -> float:
        """Blocks of a stream up to the one that is computed, on average."""
        return self._kept_blocks + (self.blocks + 1.0) / 2

    @property
    def first_hop_tokens(self) -> int:
        """Of the first piece: up to the next border of the grid, or the one behind it where that is
        too short to give sound.
        """
        to_border = -self.prompt_tokens % CHUNK_TOKENS or CHUNK_TOKENS
        return to_border if to_border > self.hold_back_tokens else to_border + CHUNK_TOKENS

    @property
    def first_tokens(self) -> int:
        """Tokens before the first sound, with those that the flow looks ahead."""
        return self.first_hop_tokens + LOOKAHEAD_TOKENS

    @property
    def first_piece(self) -> float:
        """Seconds of sound of the first piece."""
        return (self.first_hop_tokens - self.hold_back_tokens) / TOKENS_PER_SECOND
