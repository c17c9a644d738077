"""The model pass of one sequence on a CPU: restore the cached prompt of the voice, run the other
positions, compute the head.

Equal to `ReadablePasses` within rounding. The prompt always runs in a pass of its own, so that a
cached prompt changes no bit.
"""

from services.llm.engine.cpu.many_positions import ManyPositions
from services.llm.engine.cpu.one_position import OnePosition
from services.llm.engine.cpu.passes import PrunedHead
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
        """As `Passes.scores`."""
        own = min(of_voice, len(inputs) - 1) if cache.length == 0 else 0
        if own < _FEWEST:
            own = 0
        else:
            self._run_prompt(tuple(inputs[:own]), cache)
        rest = inputs[own:]
        hidden = self._one.run(rest[0], cache) if len(rest) == 1 else self._many.run(self._model.embed(rest), cache)
        return self._head.scores(hidden)

    def _run_prompt(self, inputs: tuple[Input, ...], cache: SequenceCache) -> None:
        if not self.prompts.restore(inputs, cache):
            self._many.fill_cache(self._model.embed(inputs), cache)
            self.prompts.store(inputs, cache)
