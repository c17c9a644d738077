"""Other requests change nothing: 8 at once = the same 8 one by one, request N = request 1,
fast = slow, a sentence that another engine continues = the same sentence uninterrupted.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.request import Generation, Profile, Sampling
from services.llm.generation.script import WholeText, speech_inputs
from tests.stacks.up_process import TINY, TINY3
from tests.unit.llm.tiny_llm import (
    PROMPT,
    arriving,
    backend,
    both_generations,
    for_both,
    hops,
    model,
    sentence,
    tokens,
    tokens_alone,
    with_system,
)


@both_generations
async def test_eight_at_once_are_the_eight_alone(bundle: Path) -> None:
    generations = [for_both(sentence(seed, words=1 + seed % 3)) for seed in range(8)]
    decoder = model(bundle=bundle)
    alone = [tokens_alone(decoder, generation) for generation in generations]
    assert len({tuple(generated) for generated in alone}) == 8
    async with backend(model=bundle) as engine:
        together = await asyncio.gather(*(tokens(engine, generation) for generation in generations))
        assert engine.engine.stats.decode_rows > engine.engine.stats.decode_steps
    assert together == alone


async def test_request_n_is_request_one() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8]

    async def both(engine: object) -> tuple[list[int], list[int]]:
        streamed = sentence(5, text=arriving(text[:3], text[3:]))
        return await tokens(engine, sentence(4)), await tokens(engine, streamed)  # type: ignore[arg-type]

    async with backend(max_sequences=3) as engine:
        first = await both(engine)
        others = [asyncio.create_task(tokens(engine, sentence(seed))) for seed in range(10, 14)]
        during = await both(engine)
        await asyncio.gather(*others)
        assert first == during == await both(engine)


async def test_seed_sentence_and_profile_name_the_randomness() -> None:
    samplings = [
        Sampling(seed=1),
        Sampling(seed=2),
        Sampling(seed=1, sentence_index=1),
        Sampling(seed=1, profile=Profile.UPSTREAM),
    ]
    async with backend() as engine:
        generated = [tuple(await tokens(engine, sentence(1, sampling=sampling))) for sampling in samplings]
        assert len(set(generated[:3])) == 3
        assert generated[0] == tuple(await tokens(engine, sentence(1)))
    assert all(0 <= token < 6561 for spoken in generated for token in spoken)


@pytest.mark.parametrize("cuts", [1, 2])
@both_generations
async def test_arriving_text_may_be_cut_anywhere(cuts: int, bundle: Path) -> None:
    text, prompt = list(range(20, 31)), with_system(PROMPT)
    async with backend(model=bundle) as engine:
        whole = await tokens(engine, sentence(3, text=arriving(text), prompt=prompt))
        for seed in range(2):
            at = sorted(random.Random(seed).sample(range(1, len(text)), cuts))
            pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
            assert await tokens(engine, sentence(3, text=arriving(*pieces), prompt=prompt)) == whole


def slot(decoder: SpeechTokenModel, capacity: int = 128) -> SequenceCache:
    return SequenceCache.reserve(decoder.config, capacity, decoder.device)


@torch.inference_mode()
def test_rows_together_are_rows_alone_within_rounding() -> None:
    decoder = model()
    generator = torch.Generator().manual_seed(0)
    caches, lengths = [], [3, 17, 40, 90]
    for length in lengths:
        cache = slot(decoder)
        decoder.forward(torch.randn(length, decoder.config.hidden_size, generator=generator), cache)
        caches.append((cache, SequenceCache(cache.keys.clone(), cache.values.clone(), cache.length)))
    for step in range(6):
        inputs = decoder.embed(speech_inputs([step, 100 + step, 2000 + step, 6000 + step]))
        together = decoder.log_probabilities(decoder.forward_rows(inputs, [cache for cache, _ in caches]))
        alone = [
            decoder.log_probabilities(decoder.forward(inputs[row : row + 1], cache))
            for row, (_, cache) in enumerate(caches)
        ]
        torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=0)
    assert [cache.length for cache, _ in caches] == [length + 6 for length in lengths]


@torch.inference_mode()
def test_whole_sequences_together_are_sequences_alone_within_rounding() -> None:
    decoder = model()
    lengths = [1, 17, 40]
    embeddings = torch.randn(
        len(lengths), max(lengths), decoder.config.hidden_size, generator=torch.Generator().manual_seed(0)
    )
    together = decoder.forward_batch(embeddings)
    for row, length in enumerate(lengths):
        alone = decoder.forward(embeddings[row, :length], slot(decoder, length))
        torch.testing.assert_close(together[row, :length], alone, atol=1e-4, rtol=0)


async def test_the_batched_engine_speaks_to_the_end() -> None:
    async with backend(batch_invariant=False) as engine:
        results = await asyncio.gather(*(hops(engine, sentence(seed)) for seed in range(8)))
        stats = engine.engine.stats
    assert all(generated[-1].outcome and 6 <= generated[-1].outcome.tokens <= 60 for generated in results)
    assert stats.decode_rows > 4 * stats.decode_steps
    assert (stats.running, stats.reserved_kv_bytes, stats.prefills) == (0, 0, 8)


@torch.inference_mode()
def test_prompt_and_steps_are_one_pass_within_rounding() -> None:
    decoder = model()
    prefix = WholeText(decoder.config, PROMPT, (1, 2, 3), Profile.CONTINUOUS, None).take()  # type: ignore[arg-type]  # nothing is chosen here
    forced = speech_inputs([5, 600, 6000, 5, 77])
    at_once = decoder.forward(decoder.embed([*prefix, *forced]), slot(decoder))[-len(forced) :]
    stepped = slot(decoder)
    decoder.forward(decoder.embed(prefix), stepped)
    steps = torch.cat([decoder.forward(decoder.embed([token]), stepped) for token in forced])
    torch.testing.assert_close(decoder.log_probabilities(steps), decoder.log_probabilities(at_once), atol=1e-4, rtol=0)


TEXT = list(range(20, 29))


def asked(profile: Profile = Profile.CONTINUOUS, arrives: bool = False, replay: Sequence[int] = ()) -> Generation:
    """Of whole text, or of text that arrives id by id."""
    text = {"text": arriving(*([text_id] for text_id in TEXT))} if arrives else {"words": 2}
    prompt, sampling = with_system(PROMPT), Sampling(seed=9, profile=profile)
    return sentence(9, **text, prompt=prompt, sampling=sampling, replay=tuple(replay))


@pytest.mark.parametrize(
    ("arrives", "profile", "bundle"),
    [
        (False, Profile.CONTINUOUS, TINY),
        (False, Profile.UPSTREAM, TINY),
        (True, Profile.CONTINUOUS, TINY),
        (False, Profile.CONTINUOUS, TINY3),
        (True, Profile.CONTINUOUS, TINY3),
    ],
)
async def test_replayed_is_uninterrupted(arrives: bool, profile: Profile, bundle: Path) -> None:
    async with backend(model=bundle) as first, backend(model=bundle) as second:
        uninterrupted = await tokens(first, asked(profile, arrives))
        assert len(uninterrupted) >= 8
        load = [asyncio.create_task(tokens(second, for_both(sentence(seed, words=4)))) for seed in range(2)]
        for replayed in (1, len(uninterrupted) // 2, len(uninterrupted) - 1, len(uninterrupted)):
            received = await hops(second, asked(profile, arrives, uninterrupted[:replayed]))
            assert [token for hop in received for token in hop.tokens] == uninterrupted[replayed:]
            assert [hop.outcome.tokens for hop in received if hop.outcome] == [len(uninterrupted)]
        await asyncio.gather(*load)


async def test_replay_feeds_tokens_one_at_a_time() -> None:
    """A prompt's pass over prompt and tokens together would round differently; it has to be one row
    for each token.
    """
    async with backend() as engine:
        generated = await tokens(engine, asked())
        rows = engine.engine.stats.decode_rows
        assert await tokens(engine, asked(replay=generated)) == []
        assert (engine.engine.stats.decode_rows, engine.engine.stats.extends) == (2 * rows, 0)
