"""Sampling for one run of a hosted engine: the rules of its script and its decisions so far, as
plain data that can be sent to another process.

A run is one request to the engine: from inputs that are fed at once to the next special id, or to
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

from cosyserve.generations.generation import SpeechVocabulary
from services.llm.generation.config import SamplingParameters
from services.llm.generation.sampling import RepetitionAwareChooser, Scores, SeededDraw
from services.llm.generation.script import Rules
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_TENSOR


def signals(speech: SpeechVocabulary) -> tuple[int, int]:
    """Results of a run instead of a token: of log-probabilities that are not finite, and of an
    engine that has sampled a token without the logits processor. Every special id that is chosen
    is returned as the end, so these two have no other meaning.
    """
    not_finite, bypassed, *_ = speech.all_but(speech.end)
    return not_finite, bypassed


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
        """Most decisions of the run, its special id included."""
        by_length = self.rules.longest - self.token_count
        return by_length if self.rules.fill_at is None else min(by_length, self.rules.fill_at - len(self.decisions) + 1)

    def decide(self, scores: Scores) -> int:
        """Choose an id by log-probabilities [ids], not masked: a token, the end for any end of the
        run, or a signal. After an end it returns the same id again, since an engine that works
        ahead calls it once more.
        """
        if self._ended_with is not None:
            return self._ended_with
        if not np.isfinite(scores).all():
            self._ended_with, _ = signals(self.rules.speech)
            return self._ended_with
        chosen = self.rules.choose(scores, self.decisions, self.token_count)
        self.decisions.append(chosen)
        if chosen >= self.rules.speech.tokens:
            self._ended_with = self.rules.speech.end
            return self._ended_with
        self.token_count += 1
        if self.token_count >= self.rules.longest:
            self._ended_with = self.rules.speech.end
        return chosen

    def bypassed(self) -> None:
        """Record that the engine has sampled without a decision: `decide` returns that signal from
        now on.
        """
        _, self._ended_with = signals(self.rules.speech)

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
        self.token_count -= sum(one < self.rules.speech.tokens for one in dropped)
        ended = (
            self.decisions[self._earlier_decisions :][-1:] >= [self.rules.speech.tokens]
            or self.token_count >= self.rules.longest
        )
        self._ended_with = self.rules.speech.end if ended else None

    def plain(self) -> dict[str, Any]:
        """The fields as numbers, lists and dictionaries, for any message format."""
        chooser = {**asdict(self._parameters), "seed": self._draw.seed, "sentence": self._draw.sentence}
        lists = {"masked": list(self.rules.masked), "replay": list(self.rules.replay)}
        speech = asdict(self.rules.speech) | {"special_names": list(self.rules.speech.special_names)}
        rules = {**vars(self.rules), **lists, "chooser": chooser, "speech": speech}
        return {"rules": rules, "token_count": self.token_count, "decisions": self.decisions}

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> "RunSampler":
        """The inverse of `plain`."""
        rules, parameters = dict(fields["rules"]), dict(fields["rules"]["chooser"])
        draw = SeededDraw(parameters.pop("seed"), parameters.pop("sentence"))
        rules["chooser"] = RepetitionAwareChooser(SamplingParameters(**parameters), draw)
        rules |= {name: tuple(rules[name]) for name in ("masked", "replay")}
        names = tuple(rules["speech"]["special_names"])
        rules["speech"] = SpeechVocabulary(**{**rules["speech"], "special_names": names})
        return cls(Rules(**rules), fields["token_count"], fields["decisions"])


@functools.lru_cache(maxsize=8)
def speech_bias(path: Path, first: int, rows: int, device: torch.device) -> Tensor:
    """The head's bias of the `rows` rows of speech from `first` on, float32, on the device."""
    return load_file(path)[HEAD_BIAS_TENSOR][first : first + rows].to(device=device, dtype=torch.float32)


def force_token(logits: Tensor, sampler: RunSampler, bias: Path | None, first: int) -> None:
    """Change logits [..., rows], one row of any float type, in place so that the engine can sample
    only the id that `sampler` chooses. bias: file of the head's bias, None where the head includes
    it. first: index of speech token 0. Raises ValueError for more than one row, or a row that is
    too narrow.
    """
    rows = sampler.rules.speech.rows
    row = logits.reshape(-1) if logits.is_contiguous() else logits.view(-1)
    if row.numel() != logits.shape[-1] or row.numel() < first + rows:
        raise ValueError(f"logits are {list(logits.shape)}, expected one row of at least {first + rows}")
    speech = row[first : first + rows].float()
    if bias is not None:
        speech = speech + speech_bias(bias, first, rows, row.device)
    chosen = sampler.decide(torch.log_softmax(speech, dim=-1).cpu().numpy())
    row.fill_(-torch.inf)
    row[first + chosen] = 0.0
