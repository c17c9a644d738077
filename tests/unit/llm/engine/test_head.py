"""The pruned head leaves out the ids that can never be chosen, and no others."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cosyserve.spec import END_OF_SPEECH, RESERVED_SPEECH, SPEECH_ROWS
from services.llm.engine.cpu.passes import PrunedHead
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import mask, nucleus
from tests.unit.llm.tiny_llm import model


def with_biases(*changes: tuple[slice, float]) -> SpeechTokenModel:
    plain = model()
    bias = plain.head_bias.clone()
    for ids, value in changes:
        bias[ids] = value
    return dataclasses.replace(plain, head_bias=bias)


def hidden_of(on: SpeechTokenModel, seed: int) -> torch.Tensor:
    raw = torch.randn(on.config.hidden_size, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 3)
    return F.rms_norm(raw, (len(raw),), on.norm, on.config.rms_norm_eps)


@pytest.mark.parametrize(("changes", "ids"), [((), SPEECH_ROWS), (((slice(100, 6000), -1e4),), SPEECH_ROWS - 5900)])
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
        masked = [END_OF_SPEECH, RESERVED_SPEECH]
        (chosen, share), (whole, its_share) = (nucleus(mask(scores, masked), 1.0, 6000) for scores in (mine, reference))
        np.testing.assert_allclose(share, its_share, atol=1e-5, rtol=0)
        assert sorted(chosen) == sorted(whole)


def test_what_could_still_have_a_weight_stays() -> None:
    """exp(-700) is above 0 in the sampler's numbers, so that a repeated id may be drawn again as
    it.
    """
    assert PrunedHead(with_biases((slice(0, 50), -700.0))).ids == SPEECH_ROWS


def test_a_reserved_id_that_towers_above_all_takes_nobody_out() -> None:
    """It is masked, and then the others are what there is."""
    assert PrunedHead(with_biases((slice(RESERVED_SPEECH, RESERVED_SPEECH + 1), 1e6))).ids == SPEECH_ROWS
