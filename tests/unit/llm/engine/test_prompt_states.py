"""The cache of voice prompts has a limit, and the least recently used voice goes
first.
"""

import torch

from services.llm.engine.kv_cache import PromptStates, SequenceCache, cache_bytes
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.llm.generation.script import START, Input, text_inputs

CONFIG = LlmConfig(
    hidden_size=8, intermediate_size=8, layers=2, heads=2, kv_heads=1, head_size=4, text_vocabulary=9, rope_theta=1.0,
    rms_norm_eps=1e-6,
    sampling=SamplingParameters(),
)  # fmt: skip


def empty() -> SequenceCache:
    return SequenceCache.reserve(CONFIG, 40, torch.device("cpu"))


def heard(voice: int, positions: int = 20) -> tuple[tuple[Input, ...], SequenceCache]:
    cache = empty()
    cache.keys[:, :, :positions], cache.values[:, :, :positions], cache.length = voice, -voice, positions
    return (START, *text_inputs([voice] * (positions - 1))), cache


def test_an_entry_is_restored_as_a_copy() -> None:
    states, (inputs, cache) = PromptStates(1 << 20), heard(3)
    states.store(inputs, cache)
    cache.keys[:] = 99
    for _ in range(2):
        restored = empty()
        assert states.restore(inputs, restored)
        assert restored.length == 20
        assert bool((restored.keys[:, :, :20] == 3).all() and (restored.values[:, :, :20] == -3).all())
        restored.keys[:] = 77
    assert states.bytes == cache_bytes(CONFIG, 20)


def test_an_unknown_voice_leaves_the_cache_empty() -> None:
    states, cache = PromptStates(1 << 20), empty()
    states.store(*heard(3))
    assert not states.restore(heard(4)[0], cache)
    assert not states.restore(heard(3, 19)[0], cache)
    assert cache.length == 0


def test_the_voice_that_was_away_longest_goes() -> None:
    states = PromptStates(2 * cache_bytes(CONFIG, 20) + 8)
    for voice in (1, 2):
        states.store(*heard(voice))
    assert states.restore(heard(1)[0], empty())
    states.store(*heard(3))
    assert [states.restore(heard(voice)[0], empty()) for voice in (1, 2, 3)] == [True, False, True]
    assert (len(states), states.bytes) == (2, 2 * cache_bytes(CONFIG, 20))


def test_what_exceeds_the_limit_alone_is_not_stored_and_evicts_nothing() -> None:
    states = PromptStates(cache_bytes(CONFIG, 20))
    states.store(*heard(1))
    states.store(*heard(2, 21))
    assert states.restore(heard(1)[0], empty())
    assert (len(states), states.bytes) == (1, cache_bytes(CONFIG, 20))
