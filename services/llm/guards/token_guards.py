"""Detection of unusable speech by its tokens: a sentence that does not end, ends at once, speaks
the prompt, or repeats one token.

The result depends on the tokens of the sentence and on its text so far, not on how the tokens are
cut into hops.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Absurd, PromptSpoken, Runaway, TooShort
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import FinishReason, Hop, Prompt

RUN_TOKENS = 25
"""Length of the windows that are compared with the prompt: a second of speech."""
EQUAL_TOKENS = 20
"""Equal tokens, at the same places of two windows, that make a repetition of the prompt."""
DISTINCT_TOKENS = 8
"""Fewest different ids in a repetition: pauses and held vowels always resemble each other.
"""
LONGEST_RUN = 50
"""Most equal tokens in a row: two seconds. Ordinary speech has at most 5, and the sampler draws
again an id that it chose within the last ten decisions.
"""
Ids = NDArray[np.int64]


class TokenGuards:
    """The guards of one sentence. text_ids: its own ids so far; the caller may append to them."""

    def __init__(self, prompt: Prompt, lengths: LengthBounds, text_ids: Sequence[int]) -> None:
        self._prompt = np.asarray(prompt.speech_tokens, np.int64)
        self._prompt_text_ids = prompt.text_ids
        self._lengths, self._text_ids = lengths, text_ids
        self._tail: list[int] = []
        self._count = 0
        self._last, self._run = -1, 0

    def see(self, tokens: list[int] | tuple[int, ...]) -> None:
        """Check the next tokens of the sentence, replayed ones first. Raises PromptSpoken or
        Absurd.
        """
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
        if at is not None and not self._text_repeats_prompt():
            raise PromptSpoken(
                f"the voice's prompt is being spoken: tokens up to {self._count} repeat its tokens from {at} on"
            )

    def end(self, hop: Hop) -> None:
        """Check the outcome, where the hop has one. Raises Runaway or TooShort."""
        if hop.outcome is None:
            return
        text_ids = len(self._text_ids)
        if hop.outcome.reason is FinishReason.LENGTH:
            raise Runaway(
                f"the sentence did not end: {self._count} speech tokens for {text_ids} text ids, the limit of its text"
            )
        fewest = self._lengths.shortest(text_ids)
        if self._count <= fewest:
            raise TooShort(
                f"the sentence ended at once: {self._count} speech tokens for {text_ids} text ids, due are {fewest + 1}"
            )

    def _text_repeats_prompt(self) -> bool:
        """Whether the text contains as many words of the prompt's transcript as are spoken in
        EQUAL_TOKENS: they may then sound like the prompt.
        """
        run = max(1, int(EQUAL_TOKENS / self._lengths.typical))
        runs = {tuple(self._text_ids[at : at + run]) for at in range(len(self._text_ids) - run + 1)}
        return any(self._prompt_text_ids[at : at + run] in runs for at in range(len(self._prompt_text_ids) - run + 1))


def _repeated(tokens: Ids, prompt: Ids) -> int | None:
    """Where in the prompt a window begins that `tokens` repeats; None when there is none."""
    # Checked first: pauses and held sounds equal each other everywhere, which makes the search
    # slow.
    varied = np.asarray(
        [
            len(set(tokens[at : at + RUN_TOKENS].tolist())) >= DISTINCT_TOKENS
            for at in range(len(tokens) - RUN_TOKENS + 1)
        ]
    )
    if not varied.any():
        return None
    equal = tokens[:, None] == prompt[None, :]
    rows, columns = np.nonzero(equal)
    on_diagonal = np.bincount(columns - rows + len(tokens), minlength=1)
    for diagonal in np.flatnonzero(on_diagonal >= EQUAL_TOKENS).tolist():
        offset = diagonal - len(tokens)
        first = max(-offset, 0)
        hits, spoken = np.diagonal(equal, offset), tokens[first:]
        if len(hits) < RUN_TOKENS:
            continue
        sums = np.concatenate(([0], np.cumsum(hits)))
        due = (sums[RUN_TOKENS:] - sums[:-RUN_TOKENS] >= EQUAL_TOKENS) & varied[
            first : first + len(hits) - RUN_TOKENS + 1
        ]
        for start in np.flatnonzero(due).tolist():
            window = slice(start, start + RUN_TOKENS)
            if len(np.unique(spoken[window][hits[window]])) >= DISTINCT_TOKENS:
                return int(start + max(offset, 0))
    return None
