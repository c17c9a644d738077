"""Ids of a training: one table of inputs without the rows that no tokenizer of few codes ever
makes, and one list of decisions.

Inputs: start, task, text ids, codes, and a mask that stands for a code the model may not see.
Decisions: codes, end of speech, fill.
"""

from dataclasses import dataclass

START, TASK = 0, 1
_SPECIALS = 2


@dataclass(frozen=True)
class Vocabulary:
    """text_rows: rows of the text embedding. codes: how many codes the tokenizer has."""

    text_rows: int
    codes: int

    @property
    def first_text(self) -> int:
        """Input of text id 0."""
        return _SPECIALS

    @property
    def first_code(self) -> int:
        """Input of code 0."""
        return _SPECIALS + self.text_rows

    @property
    def mask(self) -> int:
        """Input of a hidden code."""
        return self.first_code + self.codes

    @property
    def end(self) -> int:
        """Decision that speech is over."""
        return self.codes

    @property
    def fill(self) -> int:
        """Decision that more text is wanted."""
        return self.codes + 1

    @property
    def decisions(self) -> int:
        """Number of decisions."""
        return self.codes + 2
