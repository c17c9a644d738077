"""A sentence that another engine continues has the same tokens: replayed = uninterrupted."""

import asyncio

import pytest

from services.llm.generation.request import Generation, Profile, Sampling
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, hops, sentence, tokens

TEXT = list(range(20, 29))


def whole_text(profile: Profile, replay: tuple[int, ...] = ()) -> Generation:
    return sentence(9, words=2, prompt=PROMPT, sampling=Sampling(seed=9, profile=profile), replay=replay)


def arriving_text(profile: Profile, replay: tuple[int, ...] = ()) -> Generation:
    text = arriving(*([text_id] for text_id in TEXT))
    return sentence(9, text=text, prompt=PROMPT, sampling=Sampling(seed=9, profile=profile), replay=replay)


@pytest.mark.parametrize(
    ("kind", "profile"),
    [(whole_text, Profile.CONTINUOUS), (whole_text, Profile.UPSTREAM), (arriving_text, Profile.CONTINUOUS)],
)
async def test_replayed_is_uninterrupted(kind: object, profile: Profile) -> None:
    async with backend() as first, backend() as second:
        uninterrupted = await tokens(first, kind(profile))  # type: ignore[operator]
        assert len(uninterrupted) >= 8
        load = [asyncio.create_task(tokens(second, sentence(seed, words=4))) for seed in range(2)]
        for replayed in (1, len(uninterrupted) // 2, len(uninterrupted) - 1, len(uninterrupted)):
            received = await hops(second, kind(profile, tuple(uninterrupted[:replayed])))  # type: ignore[operator]
            assert [token for hop in received for token in hop.tokens] == uninterrupted[replayed:]
            outcome = received[-1].outcome
            assert outcome is not None
            assert outcome.tokens == len(uninterrupted)
        await asyncio.gather(*load)


async def test_replay_feeds_tokens_one_at_a_time() -> None:
    """A prompt's pass over prompt and tokens together would round differently; it has to be one row
    for each token.
    """
    async with backend() as engine:
        generated = await tokens(engine, whole_text(Profile.CONTINUOUS))
        rows = engine.engine.stats.decode_rows
        assert await tokens(engine, whole_text(Profile.CONTINUOUS, tuple(generated))) == []
        assert engine.engine.stats.decode_rows == 2 * rows
        assert engine.engine.stats.extends == 0
