"""Sequences as they are served: what stands where, and what has to be decided there.

`services.llm.generation.whole_text` and `services.llm.generation.interleaved_text` are the
definition; here the speech is known already.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recipes.demo_voice.language_model.layouts import START, TASK, Vocabulary

Ids = NDArray[np.int16]
NOTHING = -100
"""Target of a position where nothing is decided."""


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
