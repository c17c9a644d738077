"""The common part of the scripts for text that arrives over time: five text ids, fifteen speech
tokens, and so on.

    [start] [system part] ([5 text] [15 prompt speech])... [5 text] -> 15 tokens, FILL -> [5 text]
        -> ... -> [rest of the text] [task] -> tokens, end

A FILL requests more text. The model may choose it; after fifteen tokens it is the decision whatever
the scores are. It counts as a decision (it enters the repetition window) but is neither sent nor
fed. The system part, which not every generation has, goes in whole, outside the blocks. Source:
compatibility specification of CosyVoice2, section 3.4, and of CosyVoice3, section 3.5.
"""

import abc
from collections import deque

from cosyserve.errors import InternalFault
from services.llm.generation.config import LlmConfig
from services.llm.generation.request import MOST_TOKENS, FinishReason, Prompt
from services.llm.generation.sampling import Chooser
from services.llm.generation.script import START, TASK, Input, Rules, Script, speech_inputs, text_inputs


class ArrivingText(Script):
    """A script with blocks, FILLs and a last phase; each profile is a subclass. `feed` and `end`
    deliver the text. replay: without the FILLs. Source: compatibility specification section 3.4.
    """

    _masked_in_blocks: tuple[int, ...]
    _masked_at_end: tuple[int, ...]

    def __init__(self, config: LlmConfig, prompt: Prompt, chooser: Chooser, replay: tuple[int, ...] = ()) -> None:
        super().__init__(config.speech, chooser, replay)
        system = config.system_ids(prompt)
        self._inputs += text_inputs(prompt.text_ids[:system])
        self._text_block, self._speech_block = config.text_block, config.speech_block
        self._lengths = config.lengths
        self._text = list(prompt.text_ids[system:])
        self._prompt_speech = list(prompt.speech_tokens)
        prompt_tokens = len(prompt.speech_tokens)
        self._next_fill = (prompt_tokens // self._speech_block + 1) * self._speech_block - prompt_tokens
        self._pieces: deque[list[int]] = deque()
        self._text_ids = 0
        self._runs = self._ended = self._last_phase = False

    @property
    def ready(self) -> int:
        return len(self._inputs) if self._runs and self.finish is None else 0

    def feed(self, ids: list[int]) -> None:
        """Add text ids of the sentence, each below the text vocabulary; not after `end`."""
        self._text_ids += len(ids)
        self._pieces.append(ids)
        if not self._runs:
            self._advance()

    def end(self) -> None:
        """Mark the text as complete; call it once."""
        self._ended = True
        if not self._runs:
            self._advance()

    @abc.abstractmethod
    def _advance(self) -> None:
        """Prepare the next inputs from the text received, if it suffices; called while none are
        running.
        """

    @property
    def _most(self) -> int:
        """Most tokens of the sentence."""
        return MOST_TOKENS

    @property
    def rules(self) -> Rules:
        return Rules(
            chooser=self._chooser,
            speech=self.speech,
            masked_while_short=self.speech.end,
            masked=self._masked_at_end if self._last_phase else self._masked_in_blocks,
            longest=self._most,
            decisions=len(self.decisions),
            fill_at=None if self._last_phase else self._next_fill,
            replay=self._replay,
            fills_are_decided=not self._last_phase,
        )

    def accept(self, token: int) -> int | None:
        """As `Script.accept`. Raises InternalFault when a special id is chosen where it has no
        meaning.
        """
        if self.token_count >= self._most:
            self.finish = FinishReason.LENGTH
            return None
        self.decisions.append(token)
        if token < self.speech.tokens:
            return self._speak(token, self._most)
        if token == self.speech.fill and not self._last_phase:
            self._next_fill = len(self.decisions) + self._speech_block
            self._runs = False
            self._advance()
        elif token == self.speech.end and self._last_phase:
            self.finish = FinishReason.END_OF_SPEECH
        else:
            raise InternalFault(
                f"the model chose the special id {token} in text streaming, for which profile upstream has no rule"
            )
        return None

    def _pair_prompt(self) -> None:
        """Feed the prompt speech in blocks, each after a block of text."""
        while self._prompt_speech and len(self._text) >= self._text_block:
            self._inputs = self._inputs + self._next_text() + speech_inputs(self._prompt_speech[: self._speech_block])
            del self._prompt_speech[: self._speech_block]

    def _next_text(self) -> list[Input]:
        block = text_inputs(self._text[: self._text_block])
        del self._text[: self._text_block]
        return block

    @property
    def _after_fill(self) -> bool:
        return self.decisions[-1:] == [self.speech.fill]

    def _begin_last_phase(self, rest: list[Input]) -> None:
        self._inputs = [*self._inputs, *text_inputs(self._text), TASK, *rest]
        self._text.clear()
        self._runs = self._last_phase = True


class ContinuousText(ArrivingText):
    """Profile `continuous`: the tokens are a pure function of the text, however it is cut and
    whenever it arrives.

    Ids that have no meaning in a phase are masked. No input is fed twice, and nothing is decided
    before the first text. `LengthBounds.longest` limits the sentence. When the text is too short to
    pair all prompt speech in blocks, the rest of the prompt speech follows the task id, as in the
    layout of `WholeText`, and generation continues after it.
    """

    def __init__(self, config: LlmConfig, prompt: Prompt, chooser: Chooser, replay: tuple[int, ...] = ()) -> None:
        super().__init__(config, prompt, chooser, replay)
        self._masked_in_blocks = config.speech.all_but(config.speech.fill)
        self._masked_at_end = config.speech.all_but(config.speech.end)
        self._opening = list(self._inputs)
        speech = len(prompt.speech_tokens)
        pairs = min(len(self._text) // self._text_block, -(-speech // self._speech_block))
        self.of_voice = len(self._opening) + pairs * self._text_block + min(pairs * self._speech_block, speech)

    def take(self) -> list[Input]:
        inputs, self._inputs = self._inputs, []
        return inputs

    def _advance(self) -> None:
        while self._pieces:
            self._text += self._pieces.popleft()
        self._pair_prompt()
        if not self._prompt_speech:
            wants_text = self._after_fill or self._inputs == self._opening
            if wants_text and len(self._text) >= self._text_block:
                self._inputs = self._inputs + self._next_text()
                wants_text = False
            if not wants_text:
                self._runs = True
                return
        if self._ended:
            self._begin_last_phase(speech_inputs(self._prompt_speech))
            self._prompt_speech.clear()

    @property
    def _most(self) -> int:
        return self._lengths.longest(self._text_ids) if self._last_phase else MOST_TOKENS


class UpstreamText(ArrivingText):
    """Profile `upstream`: the exact behaviour of the reference.

    Each piece of text that arrives releases at most one block, so the tokens depend on how the text
    is cut. Inputs that already ran are kept, and fed once more before the last text. Prompt speech
    that was not paired is dropped. A special id is an error. The only length limit is that of the
    decoder. Behind a system part and without prompt speech, the first block is decided from no
    text.
    """

    def __init__(self, config: LlmConfig, prompt: Prompt, chooser: Chooser, replay: tuple[int, ...] = ()) -> None:
        super().__init__(config, prompt, chooser, replay)
        self._masked_in_blocks, self._masked_at_end = (config.speech.masked_by_reference,), ()

    def _advance(self) -> None:
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
