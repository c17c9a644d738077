"""Scripts: which inputs a sequence feeds to the model, and how its log-probabilities become tokens;
and the script of a text that is known. Scripts have no tensors and no threads.

The engine runs the pending inputs of a script and passes the log-probabilities back to it.
"""

import abc
import enum
from dataclasses import dataclass
from typing import NamedTuple

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds, SamplingParameters
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import Chooser, RepetitionAwareChooser, Scores, SeededDraw, mask


class Table(enum.IntEnum):
    """Embedding tables of the model."""

    SPECIAL = 0
    """Row 0 starts a sequence, row 1 marks the end of the text and the start of the speech."""
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
    """The rules by which ids are chosen until a reserved one is: by `Script.decide`, or by an
    engine that samples by itself and passes the ids to `Script.accept`.
    """

    chooser: Chooser
    masked: tuple[int, ...]
    """Reserved ids that are never chosen."""
    shortest: int = 0
    """The end is not chosen while the sentence has fewer tokens."""
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
    def sampling(self) -> tuple[SamplingParameters, SeededDraw]:
        """What the chooser draws by, for an engine that does the same. Raises TypeError for a
        chooser whose draws are not counter-based.
        """
        if not isinstance(self.chooser, RepetitionAwareChooser) or not isinstance(self.chooser.draw, SeededDraw):
            raise TypeError(f"no engine can sample as {type(self.chooser).__name__} does")
        return self.chooser.parameters, self.chooser.draw

    def choose(self, scores: Scores, decisions: list[int], token_count: int) -> int:
        """The next id, by log-probabilities [6564] that are not masked. A replay has no fills: they
        are decided again. decisions: all so far. token_count: speech tokens among them.
        """
        if self.fill_at is not None and len(decisions) >= self.fill_at:
            return FILL
        replayed = self.replay[token_count] if token_count < len(self.replay) else None
        if replayed is not None and not self.fills_are_decided:
            return replayed
        too_short = (END_OF_SPEECH,) if token_count < self.shortest else ()
        chosen = self.chooser.choose(mask(scores, self.masked + too_short), decisions)
        return chosen if replayed is None or chosen == FILL else replayed


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

    def __init__(self, chooser: Chooser, replay: tuple[int, ...]) -> None:
        self._chooser, self._replay = chooser, replay
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
        """Choose an id by the log-probabilities after the last input taken, float32 [6564], finite,
        not masked, and update `ready`, `token_count` and `finish`.

        Returns the speech token to send, 0 to 6560; None for a replayed token, a fill and the end.
        Raises InternalFault for a reserved id that the rules do not allow. Source: compatibility
        specification sections 3.2 to 3.4.
        """
        return self.accept(self.rules.choose(scores, self.decisions, self.token_count))

    @property
    @abc.abstractmethod
    def rules(self) -> Rules:
        """The rules from the next decision on; valid while `ready` is not 0."""

    @abc.abstractmethod
    def accept(self, token: int) -> int | None:
        """As `decide`, for an id 0 to 6563 that an engine has chosen by `rules`."""

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

    Profile `upstream` masks only the end id, and only before the shortest length, so that one of
    the two reserved ids can end a sentence early, as in the reference. Profile `continuous` always
    masks the reserved ids.

    text: at least 1 id below the text vocabulary.
    """

    def __init__(
        self,
        prompt: Prompt,
        text: tuple[int, ...],
        profile: Profile,
        chooser: Chooser,
        replay: tuple[int, ...] = (),
        lengths: LengthBounds = PUBLISHED_LENGTHS,
    ) -> None:
        super().__init__(chooser, replay)
        self._inputs = [START, *text_inputs(prompt.text_ids + text), TASK, *speech_inputs(prompt.speech_tokens)]
        # In profile `upstream` none, so that the prompt and the text run in one pass.
        self.of_voice = 0 if profile is Profile.UPSTREAM else 1 + len(prompt.text_ids)
        self._shortest, self._longest = lengths.shortest(len(text)), lengths.longest(len(text))
        self._always_masked = () if profile is Profile.UPSTREAM else (RESERVED_SPEECH, FILL)

    @property
    def ready(self) -> int:
        """As `Script.ready`: the prompt and the text at first, then one token at a time."""
        return 0 if self.finish else len(self._inputs)

    @property
    def rules(self) -> Rules:
        return Rules(
            chooser=self._chooser,
            masked=self._always_masked,
            shortest=self._shortest,
            longest=self._longest,
            decisions=len(self.decisions),
            replay=self._replay,
        )

    def accept(self, token: int) -> int | None:
        """As `Script.accept`; never raises InternalFault."""
        if token >= SPEECH_VOCABULARY:
            self.finish = FinishReason.END_OF_SPEECH
            return None
        self.decisions.append(token)
        return self._speak(token, self._longest)
