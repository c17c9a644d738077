"""Sequences as they are served: their ids, what stands where, and what has to be decided there.

Ids: one table of inputs without the rows that no tokenizer of few codes ever makes (start, task,
text ids, codes, and a mask that stands for a code the model may not see), and one list of decisions
(codes, end of speech, fill).

`services.llm.generation.script` and `services.llm.generation.interleaved_text` are the
definition; here the speech is known already.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

START, TASK = 0, 1
_SPECIALS = 2
Ids = NDArray[np.int16]
NOTHING = -100
"""Target of a position where nothing is decided."""


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


@dataclass(frozen=True)
class Layouts:
    """vocabulary: ids of inputs and decisions. text_block, speech_block: the interleave of text
    that arrives over time.
    """

    vocabulary: Vocabulary
    text_block: int
    speech_block: int

    def whole(self, text: Ids, codes: Ids) -> tuple[Ids, Ids]:
        """Text that is known: [start] [text] [task] [codes]. Inputs and targets, int16 [positions]
        each.

        text: text ids, a prompt's in front. codes: codes, the prompt's in front.
        """
        known = self.vocabulary
        inputs = np.concatenate([[START], text + known.first_text, [TASK], codes + known.first_code])
        targets = np.concatenate([np.full(len(text) + 1, NOTHING), codes, [known.end]])
        return inputs.astype(np.int16), targets.astype(np.int16)

    def arriving(self, text: Ids, codes: Ids) -> tuple[Ids, Ids]:
        """Text that arrives: ([text block] [speech block])... [rest of the text] [task] [rest of
        the codes].

        Behind each block of speech a fill is wanted. Speech too short for the blocks of its text:
        as `whole`.
        """
        known, blocks = self.vocabulary, len(text) // self.text_block
        if len(codes) < blocks * self.speech_block:
            return self.whole(text, codes)
        inputs: list[NDArray[np.generic]] = [np.array([START])]
        targets: list[NDArray[np.generic]] = [np.array([NOTHING])]
        for block in range(blocks):
            speech = codes[block * self.speech_block : (block + 1) * self.speech_block]
            inputs += [
                text[block * self.text_block : (block + 1) * self.text_block] + known.first_text,
                speech + known.first_code,
            ]
            targets += [np.full(self.text_block - 1, NOTHING), speech, np.array([known.fill])]
        rest_text, rest = text[blocks * self.text_block :], codes[blocks * self.speech_block :]
        inputs += [rest_text + known.first_text, np.array([TASK]), rest + known.first_code]
        targets += [np.full(len(rest_text), NOTHING), rest, np.array([known.end])]
        return np.concatenate(inputs).astype(np.int16), np.concatenate(targets).astype(np.int16)
