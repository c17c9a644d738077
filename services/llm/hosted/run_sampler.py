"""Decisions away from the script: the rules of one run, and how far it has come. Plain data that
can be sent to another process.

A run is what an engine does without asking back: from inputs that are fed at once to the next
reserved id, or to the longest length.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.generation.config import SamplingParameters
from services.llm.generation.sampling import RepetitionAwareChooser, Scores, SeededDraw, mask
from services.llm.generation.script import Rules

NOT_FINITE = RESERVED_SPEECH
"""What a run gives instead of a token when the log-probabilities are no numbers. A reserved id that
is chosen comes as END_OF_SPEECH, so that this one means nothing else."""
BYPASSED = FILL
"""What a run gives when its engine has gone on without asking."""


@dataclass
class RunSampler:
    """decisions: all so far, fills included. token_count: speech tokens among them. sampling, seed,
    sentence: as `RepetitionAwareChooser` and `SeededDraw` take them; the other fields: as in
    `Rules`."""

    sampling: SamplingParameters
    seed: int
    sentence: int
    masked: tuple[int, ...]
    shortest: int
    longest: int
    fill_at: int | None
    replay: tuple[int, ...]
    fills_are_decided: bool
    token_count: int
    decisions: list[int]
    _over: int | None = field(default=None, init=False)
    _begun: int = field(default=0, init=False)
    """Decisions from before this run."""

    def __post_init__(self) -> None:
        self._begun = len(self.decisions)

    @classmethod
    def of(cls, rules: Rules, token_count: int, decisions: list[int]) -> "RunSampler":
        """For a run by these rules. Raises TypeError for a chooser whose draws are not
        counter-based.
        """
        chooser = rules.chooser
        if not isinstance(chooser, RepetitionAwareChooser) or not isinstance(chooser.draw, SeededDraw):
            raise TypeError(f"no run can decide as {type(chooser).__name__} does")
        draw = chooser.draw
        return cls(
            sampling=chooser.parameters,
            seed=draw.seed,
            sentence=draw.sentence,
            masked=rules.masked,
            shortest=rules.shortest,
            longest=rules.longest,
            fill_at=rules.fill_at,
            replay=rules.replay,
            fills_are_decided=rules.fills_are_decided,
            token_count=token_count,
            decisions=list(decisions),
        )

    @property
    def most(self) -> int:
        """Decisions of the run at most, its reserved id included."""
        by_length = self.longest - self.token_count
        return by_length if self.fill_at is None else min(by_length, self.fill_at - len(self.decisions) + 1)

    def decide(self, scores: Scores) -> int:
        """The id by log-probabilities [6564], not masked: a token 0 to 6560, END_OF_SPEECH for any
        end of the run, NOT_FINITE. What follows an end is the same again, since engines that work
        ahead ask once more."""
        if self._over is not None:
            return self._over
        if not np.isfinite(scores).all():
            self._over = NOT_FINITE
            return NOT_FINITE
        chosen = self._choose(scores)
        self.decisions.append(chosen)
        if chosen >= SPEECH_VOCABULARY:
            self._over = END_OF_SPEECH
            return END_OF_SPEECH
        self.token_count += 1
        if self.token_count >= self.longest:
            self._over = END_OF_SPEECH
        return chosen

    def bypassed(self) -> None:
        """The engine has sampled without a decision: the run gives BYPASSED from now on."""
        self._over = BYPASSED

    def adopt(self, tokens: list[int]) -> None:
        """Take tokens as decided that an engine has kept from before it began the run anew."""
        self.decisions += tokens
        self.token_count += len(tokens)

    def rewind(self, count: int) -> None:
        """Only the first `count` decisions of this run count: what came after them the engine has
        thrown away.
        """
        dropped = self.decisions[self._begun + count :]
        del self.decisions[self._begun + count :]
        self.token_count -= sum(one < SPEECH_VOCABULARY for one in dropped)
        ended = self.decisions[self._begun :][-1:] >= [SPEECH_VOCABULARY] or self.token_count >= self.longest
        self._over = END_OF_SPEECH if ended else None

    def _choose(self, scores: Scores) -> int:
        step = len(self.decisions)
        if self.fill_at is not None and step >= self.fill_at:
            return FILL
        replayed = self.replay[self.token_count] if self.token_count < len(self.replay) else None
        if replayed is not None and not self.fills_are_decided:
            return replayed
        too_short = (END_OF_SPEECH,) if self.token_count < self.shortest else ()
        chooser = RepetitionAwareChooser(self.sampling, SeededDraw(self.seed, self.sentence))
        chosen = chooser.choose(mask(scores, self.masked + too_short), self.decisions)
        return chosen if replayed is None or chosen == FILL else replayed

    def plain(self) -> dict[str, Any]:
        """As numbers, lists and dictionaries, for any message format."""
        told = {name: value for name, value in asdict(self).items() if not name.startswith("_")}
        return told | {"masked": list(self.masked), "replay": list(self.replay)}

    @classmethod
    def from_plain(cls, told: Mapping[str, Any]) -> "RunSampler":
        """What `plain` gave."""
        kinds = {
            "sampling": SamplingParameters(**told["sampling"]),
            "masked": tuple(told["masked"]),
            "replay": tuple(told["replay"]),
        }
        return cls(**{**told, **kinds, "decisions": list(told["decisions"])})
