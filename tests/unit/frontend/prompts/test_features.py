"""Prompt features: their errors and scaling; other tests compare their values with the
reference.
"""

import math

import pytest
import torch

from services.frontend.prompts.features.fbank import kaldi_fbank, speaker_features
from services.frontend.prompts.features.mel import mel_spectrogram
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.features.whisper_mel import whisper_log_mel


def tone(hertz: float, rate: int, seconds: float = 0.5) -> torch.Tensor:
    return (
        0.5 * torch.sin(2 * math.pi * hertz * torch.arange(int(rate * seconds), dtype=torch.float64) / rate)
    ).float()


def test_frame_rates() -> None:
    assert mel_spectrogram(tone(440, 24_000)[None]).shape == (1, 80, 25)
    assert kaldi_fbank(tone(440, 16_000)).shape == (48, 80)
    assert whisper_log_mel(tone(440, 16_000)[None]).shape == (1, 128, 50)


def test_a_tone_survives_resampling() -> None:
    down = resample(tone(440, 48_000)[None], 48_000, 16_000)
    assert down.shape == (1, 8000)
    assert torch.allclose(down[0, 100:-100], tone(440, 16_000)[100:-100], atol=2e-3)
    same = tone(440, 16_000)[None]
    assert resample(same, 16_000, 16_000) is same


def test_what_lies_above_the_new_nyquist_is_removed() -> None:
    assert resample(tone(11_000, 48_000)[None], 48_000, 16_000)[0, 100:-100].abs().max() < 5e-3


def test_the_mean_over_time_is_subtracted() -> None:
    assert speaker_features(tone(440, 16_000) * torch.linspace(0, 1, 8000)).mean(dim=0).abs().max() < 1e-4


@pytest.mark.parametrize("wave", [torch.zeros(1, 720), torch.zeros(2000)])
def test_a_wave_too_short_for_mel_is_named(wave: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="more than 720 samples"):
        mel_spectrogram(wave)


def test_other_bad_waves_are_named() -> None:
    with pytest.raises(ValueError, match="at least 400 samples"):
        kaldi_fbank(torch.zeros(399))
    with pytest.raises(ValueError, match="more than 200 samples"):
        whisper_log_mel(torch.zeros(1, 200))
    with pytest.raises(ValueError, match="rates are 0 and 16000"):
        resample(torch.zeros(1, 10), 0, 16_000)
    with pytest.raises(ValueError, match=r"expected \[batch, samples\]"):
        resample(torch.zeros(10), 8_000, 16_000)
