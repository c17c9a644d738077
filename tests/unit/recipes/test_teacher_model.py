"""The teacher's network with random weights: a sentence sounds the same alone and in company; spans
know where rows end.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from recipes.demo_voice.synthesise import speak
from recipes.demo_voice.teacher.kokoro import Kokoro, SpeechRequest
from recipes.demo_voice.teacher.plan import Job, Styles
from recipes.demo_voice.teacher.recordings import Shard, recorded
from recipes.demo_voice.training.speech import Sentence

FASTEST = 40.0
"""Random weights ask for some 25 frames a phoneme; this leaves one."""


@pytest.fixture(scope="module")
def model() -> Kokoro:
    torch.manual_seed(3)
    return Kokoro(width=32).eval().requires_grad_(False)


def order(phonemes: int, seed: int) -> SpeechRequest:
    dice = np.random.default_rng(seed)
    return SpeechRequest(
        dice.integers(1, 178, phonemes).tolist(), dice.standard_normal(256).astype(np.float32), FASTEST
    )


def test_company_changes_nothing(model: Kokoro) -> None:
    orders = [order(2, seed=1), order(5, seed=2)]
    model.grain = 4
    together = model.speak(orders)
    model.grain = 1
    for one, shared in zip(orders, together, strict=True):
        alone = model.speak([one])[0]
        assert alone.shape == shared.shape == (600 * (len(one.tokens) + 2),)
        assert alone.std() > 0.001
        # The inverse STFT weighs the last half window by what follows it.
        assert (shared - alone)[:-10].abs().mean() < 1e-3 * alone.abs().mean()


@pytest.mark.parametrize("phonemes", [0, 511])
def test_a_sentence_must_fit(model: Kokoro, phonemes: int) -> None:
    with pytest.raises(ValueError, match="1 to 510"):
        model.speak([order(phonemes, seed=1)])


def test_a_batch_goes_into_the_shard_or_is_counted_as_refused(model: Kokoro, tmp_path: Path) -> None:
    dice = np.random.default_rng(5)
    np.save(tmp_path / "a.npy", dice.standard_normal((510, 1, 256)).astype(np.float32))
    sentences = [Sentence(4, "train", "Ten letters and more.", "tˈɛn"), Sentence(9, "train", "Hi.", "hˈI")]
    batch = [Job(sentences[0], "a", 2.0), Job(sentences[1], "a", FASTEST)]
    with Shard(tmp_path, "00") as shard:
        report = speak(model, Styles(tmp_path), batch, shard, torch.Generator().manual_seed(1))
    (recording,) = recorded(tmp_path)
    assert (recording.sentence, recording.voice, recording.speed) == (4, "a", 2.0)
    assert recording.samples == report.samples > 0
    assert report.refused == {"short": 1}
