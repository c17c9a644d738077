"""The interleaved script of the served profile."""

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH
from services.llm.generation.config import LlmConfig
from services.llm.generation.interleaved_text import ArrivingText
from services.llm.generation.request import Prompt
from services.llm.generation.sampling import Chooser
from services.llm.generation.script import START, Input, speech_inputs


class ContinuousText(ArrivingText):
    """Profile `continuous`: the tokens are a pure function of the text, however it is cut and
    whenever it arrives.

    Ids that have no meaning in a phase are masked. No input is fed twice. `LengthBounds.longest`
    limits the sentence. When the text is too short to pair all prompt speech in blocks, the rest of
    the prompt speech follows the task id, as in the layout of `WholeText`, and generation continues
    after it.
    """

    _masked_in_blocks = (END_OF_SPEECH, RESERVED_SPEECH)
    _masked_at_end = (RESERVED_SPEECH, FILL)

    def __init__(self, config: LlmConfig, prompt: Prompt, chooser: Chooser, replay: tuple[int, ...] = ()) -> None:
        super().__init__(config, prompt, chooser, replay)
        speech = len(prompt.speech_tokens)
        pairs = min(len(prompt.text_ids) // self._text_block, -(-speech // self._speech_block))
        self.of_voice = 1 + pairs * self._text_block + min(pairs * self._speech_block, speech)

    def take(self) -> list[Input]:
        """As `Script.take`."""
        inputs, self._inputs = self._inputs, []
        return inputs

    def _receive(self, ids: list[int]) -> None:
        self._text += ids

    def _advance(self) -> None:
        if self._runs:
            return
        self._pair_prompt()
        if not self._prompt_speech:
            wants_text = self._after_fill or self._inputs == [START]
            if wants_text and len(self._text) >= self._text_block:
                self._inputs = self._inputs + self._next_text()
                wants_text = False
            if not wants_text:
                self._runs = True
                return
        if self._ended:
            self._begin_last_phase(speech_inputs(self._prompt_speech))
            self._prompt_speech.clear()

    def _limit(self) -> int:
        return self._lengths.longest(self._text_ids)
