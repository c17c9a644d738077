"""One sequence, one model pass after another: the readable reference against which the engine is
tested.
"""

import torch

from cosyserve.errors import InternalFault
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.script import Script


class Alone:
    """Runs one script without an engine. capacity: positions to reserve."""

    def __init__(self, model: SpeechTokenModel, script: Script, capacity: int) -> None:
        self._model, self._script = model, script
        self._cache = SequenceCache.reserve(model.config, capacity, model.device)

    @torch.inference_mode()
    def run(self) -> list[int]:
        """The tokens that the script sends until it waits for text or ends. Raises InternalFault
        when the capacity does not suffice.
        """
        sent = []
        while ready := self._script.ready:
            if self._cache.length + ready > self._cache.capacity:
                raise InternalFault(f"the sequence needs more than its {self._cache.capacity} positions")
            hidden = self._model.forward(self._model.embed(self._script.take()), self._cache)
            token = self._script.decide(self._model.log_probabilities(hidden[-1:])[0].cpu().numpy())
            if token is not None:
                sent.append(token)
        return sent
