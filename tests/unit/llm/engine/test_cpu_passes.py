"""The cache of voice prompts has a limit, and the least recently used voice is evicted first; the
pruned head leaves out the ids that can never be chosen, and no others.
"""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.llm.engine.cpu.passes import PrunedHead
from services.llm.engine.kv_cache import PromptStates, SequenceCache, cache_bytes
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.llm.generation.sampling import mask, nucleus
from services.llm.generation.script import START, Input, text_inputs
from tests.unit.llm.tiny_llm import model

SPEECH = COSYVOICE2.speech
CONFIG = LlmConfig(
    speech=SPEECH,
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


def test_an_unknown_voice_leaves_the_cache_empty() -> None:
    states, cache = PromptStates(1 << 20), empty()
    states.store(*heard(3))
    for unknown, _ in (heard(4), heard(3, 19)):
        assert not states.restore(unknown, cache)
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


def with_biases(*changes: tuple[slice, float]) -> SpeechTokenModel:
    plain = model()
    bias = plain.head_bias.clone()
    for ids, value in changes:
        bias[ids] = value
    return dataclasses.replace(plain, head_bias=bias)


def hidden_of(on: SpeechTokenModel, seed: int) -> torch.Tensor:
    raw = torch.randn(on.config.hidden_size, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 3)
    return F.rms_norm(raw, (len(raw),), on.norm, on.config.rms_norm_eps)


@pytest.mark.parametrize(("changes", "ids"), [((), SPEECH.rows), (((slice(100, 6000), -1e4),), SPEECH.rows - 5900)])
def test_scores_are_those_of_the_whole_head(changes: tuple[tuple[slice, float], ...], ids: int) -> None:
    on = with_biases(*changes)
    head = PrunedHead(on)
    assert head.ids == ids
    for seed in range(6):
        hidden = hidden_of(on, seed)
        mine, reference = head.scores(hidden), on.log_probabilities(hidden[None])[0].numpy()
        computed = reference > -1000
        np.testing.assert_allclose(mine[computed], reference[computed], atol=1e-5, rtol=0)
        # Those left out lack the product with their weights, which changes nothing that far below.
        np.testing.assert_allclose(mine[~computed], reference[~computed], atol=30, rtol=0)
        assert np.isfinite(mine).all()
        masked = SPEECH.all_but(SPEECH.fill)
        (chosen, share), (whole, its_share) = (nucleus(mask(scores, masked), 1.0, 6000) for scores in (mine, reference))
        np.testing.assert_allclose(share, its_share, atol=1e-5, rtol=0)
        assert sorted(chosen) == sorted(whole)


def test_what_could_still_have_a_weight_stays() -> None:
    """exp(-700) is above 0 in the sampler's numbers, so that a repeated id may be drawn again as
    it.
    """
    assert PrunedHead(with_biases((slice(0, 50), -700.0))).ids == SPEECH.rows


def test_a_reserved_id_with_the_highest_bias_removes_no_other_id() -> None:
    """It is masked, and then only the others can be chosen."""
    assert PrunedHead(with_biases((slice(6562, 6563), 1e6))).ids == SPEECH.rows
