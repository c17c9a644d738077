"""Fused steps on a CUDA device against the readable path, in float32 with the small reference
model.
"""

import asyncio

import pytest
import torch

from services.llm.generation.request import Generation, Profile, Sampling
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, model, sentence, tokens, tokens_alone

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("kernels"),
]
TEXT = list(range(20, 31))


def streamed(seed: int, replay: tuple[int, ...] = ()) -> Generation:
    text = arriving(*(TEXT[at : at + 3] for at in range(0, len(TEXT), 3)))
    return sentence(
        seed, text=text, prompt=PROMPT, sampling=Sampling(seed=seed, profile=Profile.CONTINUOUS), replay=replay
    )


async def test_whole_text() -> None:
    generations = [sentence(seed, words=1 + seed % 3) for seed in range(24)]
    async with backend(device="cuda", gpu_precision="float32", max_sequences=16) as served:
        together = await asyncio.gather(*(tokens(served, generation) for generation in generations))
        alone = [await tokens(served, generation) for generation in generations]
    slow = [tokens_alone(model(), generation) for generation in generations]
    # A draw between two ids may fall on the other side of a rounded sum: once in some ten thousand
    # tokens.
    assert sum(a != b for a, b in zip(together, alone, strict=True)) <= 1
    assert sum(a != b for a, b in zip(together, slow, strict=True)) <= 1


async def test_arriving_text_and_replay() -> None:
    async with backend(device="cpu") as slow, backend(device="cuda", gpu_precision="float32") as served:
        for seed in range(3):
            expected = await tokens(slow, streamed(seed))
            assert await tokens(served, streamed(seed)) == expected
            half = tuple(expected[: len(expected) // 2])
            assert await tokens(served, streamed(seed, half)) == expected[len(half) :]


async def test_bfloat16_speaks_to_the_end() -> None:
    async with backend(device="cuda", max_sequences=8) as served:
        assert "bfloat16" in served.identity.precision
        made = await asyncio.gather(*(tokens(served, sentence(seed)) for seed in range(8)))
    assert all(6 <= len(one) <= 60 for one in made)
