"""A running engine of the speech-token model against the torch path, decision by decision.

Both are given the same seeded draws, so where their probabilities are close they decide alike.
Where one decision differs, the sentence continues after it with the torch path's token as
replayed, so that every decision is compared with its own past.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from services.llm.backends.backend import Backend
from services.llm.generation.request import Generation, Sampling
from services.llm.loading import load_backend
from services.llm.settings import LlmSettings
from tools.model.comparison.converted_model import Question
from tools.model.output.progress import Step

SEEDS = (1, 2, 3)
MOST_DIFFERING = 10
"""Of a sentence; behind them it is given up."""


@dataclass(frozen=True)
class Agreement:
    """Of one sentence. decisions: that were compared, the end's too. differing: number of each that
    was another.
    """

    name: str
    decisions: int
    differing: tuple[int, ...]

    @property
    def share(self) -> float:
        """Of decisions that differ."""
        return len(self.differing) / self.decisions


async def agreements(model: Path, engine: LlmSettings, asked: Sequence[tuple[str, Question]]) -> list[Agreement]:
    """A sentence for each question and seed. Raises SettingsError and ModelError as
    `load_backend`.
    """
    sentences = [
        (f"{name}, seed {seed}", Generation(prompt=question.prompt, text=question.text, sampling=Sampling(seed=seed)))
        for name, question in asked
        for seed in SEEDS
    ]
    torch = LlmSettings(
        listen=engine.listen, model=model, backend="torch", device="cpu", max_positions=engine.max_positions
    )
    wanted, results = list[list[int]](), list[Agreement]()
    with Step() as step:
        async with _loaded(torch) as backend:
            for name, sentence in sentences:
                step.now(f"{name}: torch")
                wanted.append(await spoken(backend, sentence))
        async with _loaded(engine) as backend:
            for (name, sentence), tokens in zip(sentences, wanted, strict=True):
                step.now(f"{name}: {engine.backend}")
                results.append(await _agreement(name, backend, sentence, tokens))
    return results


async def spoken(backend: Backend, sentence: Generation) -> list[int]:
    """The tokens that a backend makes, those that are replayed left out."""
    async with contextlib.aclosing(backend.generate(sentence)) as hops:
        return [token async for hop in hops for token in hop.tokens]


async def _agreement(name: str, backend: Backend, sentence: Generation, wanted: Sequence[int]) -> Agreement:
    decisions, differing = 0, list[int]()
    while decisions <= len(wanted) and len(differing) < MOST_DIFFERING:
        rest = wanted[decisions:]
        tokens = await spoken(backend, replace(sentence, replay=tuple(wanted[:decisions])))
        shorter = min(len(tokens), len(rest))
        same = next((at for at in range(shorter) if tokens[at] != rest[at]), shorter)
        if same == len(tokens) == len(rest):
            return Agreement(name, len(wanted) + 1, tuple(differing))
        differing.append(decisions + same)
        decisions += same + 1
    return Agreement(name, decisions, tuple(differing))


@contextlib.asynccontextmanager
async def _loaded(settings: LlmSettings) -> AsyncIterator[Backend]:
    """A backend that is closed after its use."""
    backend = load_backend(settings)
    try:
        yield backend
    finally:
        await backend.close()
