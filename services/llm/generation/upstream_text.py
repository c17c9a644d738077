"""The interleaved script of profile `upstream`, for comparison with the reference."""

from collections import deque

from cosyserve.spec import END_OF_SPEECH
from services.llm.generation.config import LlmConfig
from services.llm.generation.interleaved_text import ArrivingText
from services.llm.generation.request import MOST_TOKENS, Prompt
from services.llm.generation.sampling import Chooser
from services.llm.generation.script import START, Input


class UpstreamText(ArrivingText):
    """Profile `upstream`: the exact behaviour of the reference.

    Each piece of text that arrives releases at most one block, so the tokens depend on how the text
    is cut. Inputs that already ran are fed a second time before the last text. Prompt speech that
    was not paired is dropped. A reserved id is an error. The only length limit is that of the
    decoder.
    """

    _masked_in_blocks = (END_OF_SPEECH,)
    _masked_at_end = ()

    def __init__(self, config: LlmConfig, prompt: Prompt, chooser: Chooser, replay: tuple[int, ...] = ()) -> None:
        super().__init__(config, prompt, chooser, replay)
        self._pieces: deque[list[int]] = deque()

    def take(self) -> list[Input]:
        """As `Script.take`; the inputs are not removed, since the last text is fed after them once
        more.
        """
        return self._inputs

    def _receive(self, ids: list[int]) -> None:
        self._pieces.append(ids)

    def _advance(self) -> None:
        if self._runs:
            return
        while self._pieces:
            self._text += self._pieces.popleft()
            self._pair_prompt()
            if self._prompt_speech:
                continue
            if self._after_fill or self._inputs == [START]:
                if len(self._text) < self._text_block:
                    continue
                self._inputs = self._next_text() if self._after_fill else self._inputs + self._next_text()
            self._runs = True
            return
        if self._ended:
            self._begin_last_phase([])

    def _limit(self) -> int:
        return MOST_TOKENS
