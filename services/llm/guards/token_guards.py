"""What tokens give away about speech that must not be heard: a sentence that does not end, ends at
once, speaks the prompt, or is one token again and again.

A verdict depends on the sentence's tokens and on its text as far as it has come, not on how the
tokens are cut into hops.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Absurd, PromptSpoken, Runaway, TooShort
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import FinishReason, Hop, Prompt

RUN_TOKENS = 25
"""A second of speech: so long a stretch is compared with every stretch of the prompt."""
EQUAL_TOKENS = 20
"""So many of RUN_TOKENS that equal the prompt's at the same places are a repetition."""
DISTINCT_TOKENS = 8
"""A repetition has at least so many different ids: a pause or a held vowel sounds alike
everywhere.
"""
LONGEST_RUN = 50
"""Two seconds of one token. Ordinary speech has 5 in a row at most, and the sampler draws anew what
it chose within the last ten.
"""
Ids = NDArray[np.int64]


class TokenGuards:
    """Of one sentence. text_ids: its own, so far; the caller may add to them."""

    def __init__(self, prompt: Prompt, lengths: LengthBounds, text_ids: Sequence[int]) -> None:
        self._prompt = np.asarray(prompt.speech_tokens, np.int64)
        self._prompt_text_ids = prompt.text_ids
        self._lengths = lengths
        self._text_ids = text_ids
        self._tail: list[int] = []
        self._count = 0
        self._last, self._run = -1, 0

    def see(self, tokens: list[int] | tuple[int, ...]) -> None:
        """The next tokens of the sentence, replayed ones first. Raises PromptSpoken or Absurd."""
        self._count += len(tokens)
        for token in tokens:
            self._last, self._run = token, self._run + 1 if token == self._last else 1
            if self._run > LONGEST_RUN:
                raise Absurd(
                    f"speech token {token} came {self._run} times in a row, {self._run / 25:.0f} s of one sound"
                )
        recent = self._tail + list(tokens)
        self._tail = recent[-(RUN_TOKENS - 1) :]
        if min(len(recent), len(self._prompt)) < RUN_TOKENS:
            return
        at = _repeated(np.asarray(recent, np.int64), self._prompt)
        if at is not None and not self._is_asked_for():
            raise PromptSpoken(
                f"the voice's prompt is being spoken: tokens up to {self._count} repeat its tokens from {at} on"
            )

    def end(self, hop: Hop) -> None:
        """The last hop has been seen. Raises Runaway or TooShort."""
        if hop.outcome is None:
            return
        text_ids = len(self._text_ids)
        if hop.outcome.reason is FinishReason.LENGTH:
            raise Runaway(
                f"the sentence did not end: {self._count} speech tokens for {text_ids} text ids, where none was left "
                "to be made"
            )
        fewest = self._lengths.shortest(text_ids)
        if self._count <= fewest:
            raise TooShort(
                f"the sentence ended at once: {self._count} speech tokens for {text_ids} text ids, due are {fewest + 1}"
            )

    def _is_asked_for(self) -> bool:
        """Whether the text has words of the prompt's transcript in it, as many as are said in
        EQUAL_TOKENS: whoever says them anew may say them alike."""
        run = max(1, int(EQUAL_TOKENS / self._lengths.typical))
        asked = {tuple(self._text_ids[at : at + run]) for at in range(len(self._text_ids) - run + 1)}
        return any(self._prompt_text_ids[at : at + run] in asked for at in range(len(self._prompt_text_ids) - run + 1))


def _repeated(made: Ids, prompt: Ids) -> int | None:
    """Where in the prompt a stretch begins that `made` repeats; None when there is none."""
    # Told first, since a pause or a held sound equals itself everywhere.
    varied = np.asarray(
        [len(set(made[at : at + RUN_TOKENS].tolist())) >= DISTINCT_TOKENS for at in range(len(made) - RUN_TOKENS + 1)]
    )
    if not varied.any():
        return None
    equal = made[:, None] == prompt[None, :]
    rows, columns = np.nonzero(equal)
    on_diagonal = np.bincount(columns - rows + len(made), minlength=1)
    for diagonal in np.flatnonzero(on_diagonal >= EQUAL_TOKENS).tolist():
        offset = diagonal - len(made)
        first = max(-offset, 0)
        hits, spoken = np.diagonal(equal, offset), made[first:]
        if len(hits) < RUN_TOKENS:
            continue
        sums = np.concatenate(([0], np.cumsum(hits)))
        due = (sums[RUN_TOKENS:] - sums[:-RUN_TOKENS] >= EQUAL_TOKENS) & varied[
            first : first + len(hits) - RUN_TOKENS + 1
        ]
        for start in np.flatnonzero(due).tolist():
            stretch = slice(start, start + RUN_TOKENS)
            if len(np.unique(spoken[stretch][hits[stretch]])) >= DISTINCT_TOKENS:
                return int(start + max(offset, 0))
    return None
