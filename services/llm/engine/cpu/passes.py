"""The model pass of one sequence on a CPU: restore the cached prompt of the voice, run the other
positions, compute the head.

Equal to `ReadablePasses` within rounding. The prompt always runs in a pass of its own, so that a
cached prompt changes no bit.
"""

import math

import numpy as np
import torch
from torch import Tensor

from services.llm.engine.cpu.many_positions import ManyPositions
from services.llm.engine.cpu.one_position import OnePosition
from services.llm.engine.kv_cache import PromptStates, SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import Scores
from services.llm.generation.script import Input

_FEWEST = 16
"""Fewest positions of a prompt that are worth a pass of their own."""


class CpuPasses:
    """Implements `Passes`. model: on the CPU. cache_bytes: limit for the keys and values of all
    cached prompts; 0 disables the cache.
    """

    def __init__(self, model: SpeechTokenModel, cache_bytes: int) -> None:
        self._model = model
        self._one, self._many, self._head = OnePosition(model), ManyPositions(model), PrunedHead(model)
        self.prompts = PromptStates(cache_bytes)

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        own = min(of_voice, len(inputs) - 1)
        prompt = tuple(inputs[:own]) if own >= _FEWEST and cache.length == 0 else ()
        if prompt and not self.prompts.restore(prompt, cache):
            self._many.fill_cache(self._model.embed(prompt), cache)
            self.prompts.store(prompt, cache)
        rest = inputs[len(prompt) :]
        hidden = self._one.run(rest[0], cache) if len(rest) == 1 else self._many.run(self._model.embed(rest), cache)
        return self._head.scores(hidden)


_VANISHES = 800.0
"""The sampler computes in float64, where exp(-746) is 0: an id this far below another has no
weight, whatever is masked.
"""


class PrunedHead:
    """Computes log-probabilities from a hidden state. Not thread-safe.

    The final norm limits the length of the hidden state x to sqrt(hidden) before its weights g, so
    the logit of id i lies within b[i] +- sqrt(hidden) * |w[i] * g|. Ids whose upper bound is 800
    below the lower bound of a speech token are left out of the product and of the normaliser, to
    which they would add exp(-800). Their logit is their bias. A head without such ids is used
    unchanged.
    """

    def __init__(self, model: SpeechTokenModel) -> None:
        self._ids = _possible(model)
        """Ids that are computed; None: all."""
        if self._ids is None:
            self._weight, self._bias = model.head, model.head_bias
        else:
            chosen = torch.from_numpy(self._ids)
            self._weight, self._bias = model.head[chosen], model.head_bias[chosen]
        self._rest: Scores = model.head_bias.numpy()
        self._logits = torch.empty(len(self._bias))

    @property
    def ids(self) -> int:
        """Number of ids that are computed."""
        return len(self._bias)

    def scores(self, hidden: Tensor) -> Scores:
        """Log-probabilities [ids] of one hidden state [hidden], equal to
        `SpeechTokenModel.log_probabilities` within rounding.
        """
        torch.addmv(self._bias, self._weight, hidden, out=self._logits)
        logits = self._logits.numpy()
        # The caller checks the scores for numbers that are not finite.
        with np.errstate(all="ignore"):
            most = logits.max()
            total = most + np.log(np.exp(logits - most).sum())
            if self._ids is None:
                all_scores: Scores = logits - total
                return all_scores
            scores: Scores = self._rest - total
            scores[self._ids] = logits - total
        return scores


def _possible(model: SpeechTokenModel) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """The ids that can have a weight above 0, in order; None for all."""
    reach = math.sqrt(model.config.hidden_size) * torch.linalg.vector_norm(model.head * model.norm, dim=1)
    least = (model.head_bias - reach)[: model.config.speech.tokens].max()  # special ids may be masked
    possible = model.head_bias + reach >= least - _VANISHES
    # A weight that is not finite, which the loader refuses, would make every id possible.
    return None if bool(possible.all()) else torch.nonzero(possible).flatten().numpy()
