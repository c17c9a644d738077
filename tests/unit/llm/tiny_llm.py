"""The reference model of each generation behind a backend, and requests for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.engines.compatibility import Identity
from services.llm.backends.backend import Backend
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.engine.stepper import Alone, Passes, Stepper
from services.llm.engine.weights import ServedModel
from services.llm.generation.request import Generation, Grouping, Hop, Prompt, Sampling
from services.llm.generation.requested_script import positions_of_whole_text
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText
from services.llm.settings import LlmSettings
from tests.stacks.up_process import TINY, TINY3

CPU = torch.device("cpu")
PROMPT = Prompt((11, 12, 13, 14, 15, 16, 17), tuple(range(40, 60)))
SYSTEM = (1, 2, 3, 259)
"""Ends with the mark that a sentence for TINY3 needs; to TINY it is text."""
both_generations = pytest.mark.parametrize("bundle", [TINY, TINY3], ids=lambda bundle: str(bundle.name))


def model(device: torch.device = CPU, bundle: Path = TINY) -> SpeechTokenModel:
    return ServedModel.read(bundle).load(device)


def with_system(prompt: Prompt) -> Prompt:
    return Prompt(SYSTEM + prompt.text_ids, prompt.speech_tokens)


def settings(**changes: Any) -> LlmSettings:
    """One thread: layers this small are quicker on it, and the comparisons run on one too."""
    return LlmSettings(
        **{"listen": "127.0.0.1:0", "model": TINY, "device": "cpu", "threads": 1, "max_positions": 2048} | changes
    )


@contextlib.asynccontextmanager
async def backend(**changes: Any) -> AsyncIterator[TorchBackend]:
    loaded = TorchBackend.load(settings(**changes))
    try:
        yield loaded
    finally:
        await loaded.close()


def readable_engine(
    on: SpeechTokenModel,
    limits: Limits,
    passes: Passes | None = None,
    batch_invariant: bool = True,
    on_fault: Callable[[str], None] | None = None,
) -> Engine:
    steps = partial(Stepper, on, passes=passes, batch_invariant=batch_invariant)
    return Engine(on.config, limits, steps, threads=1, on_fault=on_fault)


@contextlib.asynccontextmanager
async def on_engine(engine: Engine, positions: int = 2048) -> AsyncIterator[TorchBackend]:
    """A backend on an engine of the test. positions: of the longest sequence."""
    served = TorchBackend(engine, Identity("tiny", "torch", "float32", "cpu"), positions)
    try:
        yield served
    finally:
        await served.close()


def sentence(seed: int, words: int = 3, **changes: Any) -> Generation:
    """A sentence of `words` text ids that differs from the next seed's in text, prompt length and
    randomness. It lacks a system part, see `for_both`.
    """
    text = tuple((7 * seed + 3 * word) % 300 for word in range(words))
    prompt = Prompt(PROMPT.text_ids[: seed % 7], PROMPT.speech_tokens[: 3 * seed % 20])
    return Generation(
        **{"prompt": prompt, "text": text, "sampling": Sampling(seed=seed), "grouping": Grouping(first=7, rest=5)}
        | changes
    )


def for_both(generation: Generation) -> Generation:
    """The sentence with a system part, which either model takes."""
    return replace(generation, prompt=with_system(generation.prompt))


async def arriving(*pieces: Iterable[int]) -> AsyncIterator[list[int]]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield list(piece)


async def hops(source: Backend, generation: Generation) -> list[Hop]:
    async with contextlib.aclosing(source.generate(generation)) as received:
        return [hop async for hop in received]


async def tokens(source: Backend, generation: Generation) -> list[int]:
    return [token for hop in await hops(source, generation) for token in hop.tokens]


def tokens_alone(on: SpeechTokenModel, generation: Generation) -> list[int]:
    """The same by the slow readable path."""
    sampling = generation.sampling
    chooser = RepetitionAwareChooser(on.config.sampling, SeededDraw(sampling.seed, sampling.sentence_index))
    script = WholeText(on.config, generation.prompt, generation.text, sampling.profile, chooser, generation.replay)
    return Alone(on, script, positions_of_whole_text(generation.prompt, len(generation.text), 2048)).run()
