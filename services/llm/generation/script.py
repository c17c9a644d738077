"""What a sequence feeds the model and what it makes of the answer. Scripts know ids, rules and
order; no tensors, no threads.

The engine knows only this: run the pending inputs, hand the log-probabilities back.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from services.llm.generation.request import FinishReason
from services.llm.generation.sampling import Chooser, Scores


class Table(enum.IntEnum):
    """Embedding tables of the model."""

    SPECIAL = 0
    """Row 0 starts a sequence, row 1 says that text is over and speech begins."""
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
    """How decisions are made until one is a reserved id: what `Script.decide` goes by, told to an
    engine that decides on its own and hands the ids to `Script.accept`."""

    chooser: Chooser
    masked: tuple[int, ...]
    """Reserved ids that are never chosen."""
    shortest: int = 0
    """While fewer tokens are made, the end is not chosen either."""
    longest: int
    """With so many tokens the sentence is over."""
    decisions: int
    """Decisions so far, fills included: number of the next."""
    fill_at: int | None = None
    """Number of the decision that is a fill without asking."""
    replay: tuple[int, ...] = ()
    """Token number n is replay[n], as far as it goes."""
    fills_are_decided: bool = False
    """Whether a fill that is chosen, or due, goes before a replayed token."""


class Script(Protocol):
    """One sequence as the engine sees it."""

    @property
    def finish(self) -> FinishReason | None:
        """Why the sequence is over; None while it is not."""
        ...

    @property
    def token_count(self) -> int:
        """Speech tokens made so far, replayed ones included."""
        ...

    @property
    def ready(self) -> int:
        """Number of inputs that can run now; 0 while waiting for text or when over."""
        ...

    @property
    def of_voice(self) -> int:
        """How many of the inputs taken first follow from the voice alone, so that every sentence of
        the voice begins with them; 0 where that is not known. It says nothing once inputs were
        taken."""
        ...

    def take(self) -> list[Input]:
        """The inputs to run next in one pass, in order, `ready` of them and at least 1; call it
        only while `ready` is not 0, and follow it with `decide`."""
        ...

    def decide(self, scores: Scores) -> int | None:
        """Decide by the log-probabilities behind the last input taken, float32 [6564], finite, not
        masked. Afterwards `ready`, `token_count` and `finish` say how it goes on.

        Returns the speech token to send, 0 to 6560; None for a replayed token, a fill and the end.
        Raises InternalFault when the rules have no way on. Source: compatibility specification
        sections 3.2 to 3.4.
        """
        ...

    @property
    def rules(self) -> Rules:
        """The rules from the next decision on; asked for while `ready` is not 0."""
        ...

    def accept(self, token: int) -> int | None:
        """As `decide`, for a decision that was made elsewhere by `rules`: an id 0 to 6563."""
        ...
