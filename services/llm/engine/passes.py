"""The model pass of a single sequence, and its readable implementation for any device."""

from typing import Protocol

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import Scores
from services.llm.generation.script import Input


class Passes(Protocol):
    """Used by the engine's thread only."""

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        """Log-probabilities [6564] after the last of n >= 1 inputs; the cache grows by n. of_voice:
        as `Script.of_voice`.

        A pure function of the arguments: other sequences do not change a bit of it.
        """
        ...


class ReadablePasses:
    """One call of the model for all inputs."""

    def __init__(self, model: SpeechTokenModel) -> None:
        self._model = model

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        """As `Passes.scores`."""
        hidden = self._model.forward(self._model.embed(inputs), cache)
        scores: Scores = self._model.log_probabilities(hidden[-1:])[0].cpu().numpy()
        return scores
