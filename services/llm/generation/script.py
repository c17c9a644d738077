"""Scripts: which inputs a sequence feeds to the model, and how its log-probabilities become tokens;
and the script of a text that is known. Scripts have no tensors and no threads.

The engine runs the pending inputs of a script and passes the log-probabilities back to it.
"""

import abc
import enum
from dataclasses import dataclass
from typing import NamedTuple

from cosyserve.generations.generation import SpeechVocabulary
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import Chooser, RepetitionAwareChooser, Scores, SeededDraw, mask


class Table(enum.IntEnum):
    """Embedding tables of the model."""

    SPECIAL = 0
    """Row 0 starts a sequence, row 1 marks the end of the text and the start of the speech. Where
    the speech embedding holds both, the model copies its two rows.
    """
    TEXT = 1
    SPEECH = 2


class Input(NamedTuple):
    """One position of model input: a row of a table."""

    table: Table
    row: int


START = Input(Table.SPECIAL, 0)
TASK = Input(Table.SPECIAL, 1)


def text_inputs(ids: list[int] | tuple[int, ...]) -> list[Input]:
    """Inputs for text ids below the text vocabulary."""
    return [Input(Table.TEXT, row) for row in ids]


def speech_inputs(ids: list[int] | tuple[int, ...]) -> list[Input]:
    """Inputs for speech tokens 0 to 6560."""
    return [Input(Table.SPEECH, row) for row in ids]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules by which ids are chosen until a special one is: by `Script.decide`, or by an
    engine that samples by itself and passes the ids to `Script.accept`.
    """

    chooser: Chooser
    speech: SpeechVocabulary
    masked: tuple[int, ...]
    """Special ids that are never chosen."""
    shortest: int = 0
    """Number of tokens until which the sentence is short."""
    masked_while_short: int
    """Special id that is not chosen either while the sentence is short."""
    longest: int
    """The sentence ends when it has this many tokens."""
    decisions: int
    """Number of decisions so far, fills included; also the number of the next decision."""
    fill_at: int | None = None
    """Number of the decision that is a fill whatever the scores are."""
    replay: tuple[int, ...] = ()
    """Token number n is replay[n] while n is less than its length."""
    fills_are_decided: bool = False
    """Whether a fill that is chosen, or due, takes precedence over a replayed token."""

    @property
    def run_end(self) -> int:
        """The special id that ends a run of decisions: a fill while text may come, or the end."""
        return self.speech.end if self.fill_at is None else self.speech.fill

    @property
    def sampling(self) -> tuple[SamplingParameters, SeededDraw]:
        """What the chooser draws by, for an engine that does the same. Raises TypeError for a
        chooser whose draws are not counter-based.
        """
        if not isinstance(self.chooser, RepetitionAwareChooser) or not isinstance(self.chooser.draw, SeededDraw):
            raise TypeError(f"no engine can sample as {type(self.chooser).__name__} does")
        return self.chooser.parameters, self.chooser.draw

    def choose(self, scores: Scores, decisions: list[int], token_count: int) -> int:
        """The next id, by log-probabilities [ids] that are not masked. A replay has no fills: they
        are decided again. decisions: all so far. token_count: speech tokens among them.
        """
        fill = self.speech.fill
        if self.fill_at is not None and len(decisions) >= self.fill_at:
            return fill
        replayed = self.replay[token_count] if token_count < len(self.replay) else None
        if replayed is not None and not self.fills_are_decided:
            return replayed
        too_short = (self.masked_while_short,) if token_count < self.shortest else ()
        chosen = self.chooser.choose(mask(scores, self.masked + too_short), decisions)
        return chosen if replayed is None or chosen == fill else replayed


class Script(abc.ABC):
    """One sequence as the engine sees it. replay: tokens that are fed instead of drawn, and not
    sent.
    """

    finish: FinishReason | None = None
    """Why the sequence is over; None while it is not."""
    of_voice = 0
    """Number of leading inputs that depend on the voice alone, so that every sentence of the voice
    begins with them; 0 where that is not known. Meaningless after the first `take`.
    """

    def __init__(self, speech: SpeechVocabulary, chooser: Chooser, replay: tuple[int, ...]) -> None:
        self.speech, self._chooser, self._replay = speech, chooser, replay
        self._inputs = [START]
        self.decisions: list[int] = []
        """All ids that were accepted, fills included."""
        self.token_count = 0
        """Number of speech tokens among them, replayed ones included."""

    @property
    @abc.abstractmethod
    def ready(self) -> int:
        """Number of inputs that can run now; 0 while waiting for text or when over."""

    def take(self) -> list[Input]:
        """The next `ready` inputs, to be run in one pass. Call it only while `ready` is not 0, and
        call `decide` or `accept` afterwards.
        """
        return self._inputs

    def decide(self, scores: Scores) -> int | None:
        """Choose an id by the log-probabilities after the last input taken, float32 [ids], finite,
        not masked, and update `ready`, `token_count` and `finish`.

        Returns the speech token to send, 0 to 6560; None for a replayed token, a fill and the end.
        Raises InternalFault for a special id that the rules do not allow. Source: compatibility
        specification sections 3.2 to 3.4.
        """
        return self.accept(self.rules.choose(scores, self.decisions, self.token_count))

    @property
    @abc.abstractmethod
    def rules(self) -> Rules:
        """The rules from the next decision on; valid while `ready` is not 0."""

    @abc.abstractmethod
    def accept(self, token: int) -> int | None:
        """As `decide`, for an id that an engine has chosen by `rules`."""

    def _speak(self, token: int, longest: int) -> int | None:
        """Feed a speech token back; the sentence ends when it has `longest`. Returns as
        `accept`.
        """
        replayed = self.token_count < len(self._replay)
        self.token_count += 1
        self._inputs = speech_inputs([token])
        if self.token_count >= longest:
            self.finish = FinishReason.LENGTH
        return None if replayed else token


class WholeText(Script):
    """The `Script` of a sentence whose text is known: prompt, then one speech token at a time.

        [start] [prompt text, text] [task] [prompt speech] -> tokens, each fed back

    Length: 2 to 20 tokens per text id unless the model directory sets other bounds, and never more
    than 4096. Source: compatibility specification sections 3.2 and 3.3.

    Profile `upstream` masks a single id, and only before the shortest length, so that another
    special id can end a sentence early, as in the reference; in CosyVoice3 that single id is not
    the end (compatibility specification of CosyVoice3, section 3.3). Profile `continuous` always
    masks all special ids but the end, and that before the shortest length.

    text: at least 1 id below the text vocabulary.
    """

    def __init__(
        self,
        config: LlmConfig,
        prompt: Prompt,
        text: tuple[int, ...],
        profile: Profile,
        chooser: Chooser,
        replay: tuple[int, ...] = (),
    ) -> None:
        speech, lengths = config.speech, config.lengths
        super().__init__(speech, chooser, replay)
        self._inputs = [START, *text_inputs(prompt.text_ids + text), TASK, *speech_inputs(prompt.speech_tokens)]
        # In profile `upstream` none, so that the prompt and the text run in one pass.
        self.of_voice = 0 if profile is Profile.UPSTREAM else 1 + len(prompt.text_ids)
        self._shortest, self._longest = lengths.shortest(len(text)), lengths.longest(len(text))
        self._always_masked, self._masked_while_short = (
            ((), speech.masked_by_reference)
            if profile is Profile.UPSTREAM
            else (speech.all_but(speech.end), speech.end)
        )

    @property
    def ready(self) -> int:
        """As `Script.ready`: the prompt and the text at first, then one token at a time."""
        return 0 if self.finish else len(self._inputs)

    @property
    def rules(self) -> Rules:
        return Rules(
            chooser=self._chooser,
            speech=self.speech,
            masked=self._always_masked,
            masked_while_short=self._masked_while_short,
            shortest=self._shortest,
            longest=self._longest,
            decisions=len(self.decisions),
            replay=self._replay,
        )

    def accept(self, token: int) -> int | None:
        """As `Script.accept`; never raises InternalFault."""
        if token >= self.speech.tokens:
            self.finish = FinishReason.END_OF_SPEECH
            return None
        self.decisions.append(token)
        return self._speak(token, self._longest)
