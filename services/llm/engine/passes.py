"""The model pass of a single sequence, its readable implementation for any device, and the readable
loop over such passes against which the engine is tested.
"""

from typing import Protocol

import torch

from cosyserve.errors import InternalFault
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import Scores
from services.llm.generation.script import Input, Script


class Passes(Protocol):
    """Used by the engine's thread only."""

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        """Log-probabilities [6564] after the last of n >= 1 inputs; the cache grows by n. of_voice:
        as `Script.of_voice`.

        A pure function of the arguments: other sequences do not change a bit of it.
        """


class ReadablePasses:
    """One call of the model for all inputs."""

    def __init__(self, model: SpeechTokenModel) -> None:
        self._model = model

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        """As `Passes.scores`."""
        hidden = self._model.forward(self._model.embed(inputs), cache)
        scores: Scores = self._model.log_probabilities(hidden[-1:])[0].cpu().numpy()
        return scores


class Alone:
    """Runs one script without an engine. capacity: positions to reserve."""

    def __init__(self, model: SpeechTokenModel, script: Script, capacity: int) -> None:
        self._passes, self._script = ReadablePasses(model), script
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
            token = self._script.decide(self._passes.scores(self._script.take(), self._cache, of_voice=0))
            if token is not None:
                sent.append(token)
        return sent
