"""Sampling for one run of a hosted engine: the rules of its script and its decisions so far, as
plain data that can be sent to another process.

A run is one request to the engine: from inputs that are fed at once to the next reserved id, or to
the length limit.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_ROWS, SPEECH_VOCABULARY
from services.llm.generation.config import SamplingParameters
from services.llm.generation.sampling import RepetitionAwareChooser, Scores, SeededDraw
from services.llm.generation.script import Rules
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_TENSOR

NOT_FINITE = RESERVED_SPEECH
"""Result of a run instead of a token when the log-probabilities are not finite. A reserved id that
is chosen is returned as END_OF_SPEECH, so this id has no other meaning.
"""
BYPASSED = FILL
"""Result of a run whose engine has sampled a token without the logits processor."""


@dataclass
class RunSampler:
    """rules: of the script when the run begins. decisions: all so far, fills included. token_count:
    number of speech tokens among them. Raises TypeError for draws that are not counter-based.
    """

    rules: Rules
    token_count: int
    decisions: list[int]
    _ended_with: int | None = field(default=None, init=False)
    _earlier_decisions: int = field(default=0, init=False)
    """Number of decisions before this run."""

    def __post_init__(self) -> None:
        self.decisions = list(self.decisions)
        self._earlier_decisions = len(self.decisions)
        self._parameters, self._draw = self.rules.sampling

    @property
    def most(self) -> int:
        """Most decisions of the run, its reserved id included."""
        by_length = self.rules.longest - self.token_count
        return by_length if self.rules.fill_at is None else min(by_length, self.rules.fill_at - len(self.decisions) + 1)

    def decide(self, scores: Scores) -> int:
        """Choose an id by log-probabilities [6564], not masked: a token 0 to 6560, END_OF_SPEECH
        for any end of the run, or NOT_FINITE. After an end it returns the same id again, since an
        engine that works ahead calls it once more.
        """
        if self._ended_with is not None:
            return self._ended_with
        if not np.isfinite(scores).all():
            self._ended_with = NOT_FINITE
            return NOT_FINITE
        chosen = self.rules.choose(scores, self.decisions, self.token_count)
        self.decisions.append(chosen)
        if chosen >= SPEECH_VOCABULARY:
            self._ended_with = END_OF_SPEECH
            return END_OF_SPEECH
        self.token_count += 1
        if self.token_count >= self.rules.longest:
            self._ended_with = END_OF_SPEECH
        return chosen

    def bypassed(self) -> None:
        """Record that the engine has sampled without a decision: `decide` returns BYPASSED from now
        on.
        """
        self._ended_with = BYPASSED

    def adopt(self, tokens: list[int]) -> None:
        """Append tokens that the engine kept from before it restarted the run."""
        self.decisions += tokens
        self.token_count += len(tokens)

    def rewind(self, count: int) -> None:
        """Drop all but the first `count` decisions of this run, as the engine has dropped the later
        ones.
        """
        dropped = self.decisions[self._earlier_decisions + count :]
        del self.decisions[self._earlier_decisions + count :]
        self.token_count -= sum(one < SPEECH_VOCABULARY for one in dropped)
        ended = (
            self.decisions[self._earlier_decisions :][-1:] >= [SPEECH_VOCABULARY]
            or self.token_count >= self.rules.longest
        )
        self._ended_with = END_OF_SPEECH if ended else None

    def plain(self) -> dict[str, Any]:
        """The fields as numbers, lists and dictionaries, for any message format."""
        chooser = {**asdict(self._parameters), "seed": self._draw.seed, "sentence": self._draw.sentence}
        lists = {"masked": list(self.rules.masked), "replay": list(self.rules.replay)}
        rules = {**vars(self.rules), **lists, "chooser": chooser}
        return {"rules": rules, "token_count": self.token_count, "decisions": self.decisions}

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> "RunSampler":
        """The inverse of `plain`."""
        rules, parameters = dict(fields["rules"]), dict(fields["rules"]["chooser"])
        draw = SeededDraw(parameters.pop("seed"), parameters.pop("sentence"))
        rules["chooser"] = RepetitionAwareChooser(SamplingParameters(**parameters), draw)
        rules |= {name: tuple(rules[name]) for name in ("masked", "replay")}
        return cls(Rules(**rules), fields["token_count"], fields["decisions"])


@functools.lru_cache(maxsize=8)
def speech_bias(path: Path, first: int, device: torch.device) -> Tensor:
    """The head's bias of the 6564 speech rows, float32, on the device."""
    return load_file(path)[HEAD_BIAS_TENSOR][first : first + SPEECH_ROWS].to(device=device, dtype=torch.float32)


def force_token(logits: Tensor, sampler: RunSampler, bias: Path | None, first: int) -> None:
    """Change logits [..., rows], one row of any float type, in place so that the engine can sample
    only the id that `sampler` chooses. bias: file of the head's bias, None where the head includes
    it. first: index of speech token 0. Raises ValueError for more than one row, or a row that is
    too narrow.
    """
    row = logits.reshape(-1) if logits.is_contiguous() else logits.view(-1)
    if row.numel() != logits.shape[-1] or row.numel() < first + SPEECH_ROWS:
        raise ValueError(f"logits are {list(logits.shape)}, expected one row of at least {first + SPEECH_ROWS}")
    speech = row[first : first + SPEECH_ROWS].float()
    if bias is not None:
        speech = speech + speech_bias(bias, first, row.device)
    chosen = sampler.decide(torch.log_softmax(speech, dim=-1).cpu().numpy())
    row.fill_(-torch.inf)
    row[first + chosen] = 0.0
