"""The head without the ids that no input can make possible: a model trained on few of the 6561
codes gives the others a bias far below.
"""

import math

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import SPEECH_VOCABULARY
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import Scores

_VANISHES = 800.0
"""exp(-746) is 0 in float64, in which the sampler computes: an id so far below another has no
weight, whatever is masked.
"""


class PrunedHead:
    """Hidden state to log-probabilities. Belongs to one thread.

    Behind the final norm a hidden state x is at most sqrt(hidden) long before its weights g, so
    that the logit of id i lies within b[i] +- sqrt(hidden) * |w[i] * g|. Ids whose upper end is 800
    below another speech token's lower end are left out of the product, and of the normaliser, to
    which they add exp(-800). They are given their bias as logit. A head that has none such is used
    as it is.
    """

    def __init__(self, model: SpeechTokenModel) -> None:
        self._ids = _possible(model)
        """None: all."""
        if self._ids is None:
            self._weight, self._bias = model.head, model.head_bias
        else:
            chosen = torch.from_numpy(self._ids)
            self._weight, self._bias = model.head[chosen], model.head_bias[chosen]
        self._rest: Scores = model.head_bias.numpy()
        self._logits = torch.empty(len(self._bias))

    @property
    def ids(self) -> int:
        """Ids that are computed."""
        return len(self._bias)

    def scores(self, hidden: Tensor) -> Scores:
        """Log-probabilities [6564] behind one state [hidden], as
        `SpeechTokenModel.log_probabilities` within rounding.
        """
        torch.addmv(self._bias, self._weight, hidden, out=self._logits)
        logits = self._logits.numpy()
        # who reads the scores looks for numbers that are not finite
        with np.errstate(all="ignore"):
            most = logits.max()
            total = most + np.log(np.exp(logits - most).sum())
            if self._ids is None:
                everyone: Scores = logits - total
                return everyone
            scores: Scores = self._rest - total
            scores[self._ids] = logits - total
        return scores


def _possible(model: SpeechTokenModel) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """The ids that can have a weight, in order; None for all."""
    reach = math.sqrt(model.config.hidden_size) * torch.linalg.vector_norm(model.head * model.norm, dim=1)
    least = (model.head_bias - reach)[:SPEECH_VOCABULARY].max()  # reserved ids may be masked
    possible = model.head_bias + reach >= least - _VANISHES
    # A weight that is not finite, which the loader refuses, would make every id possible.
    return None if bool(possible.all()) else torch.nonzero(possible).flatten().numpy()
