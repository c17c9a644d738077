"""`spk2info.pt` of the bundled model: one voice with a prompt, one known only by its vector."""

import math

import torch
from torch import Tensor

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN, SPEAKER_DIMENSION, SPEECH_VOCABULARY
from services.frontend.features.mel import mel_spectrogram
from tools.hum.draws import Draws
from tools.hum.flow import voice_direction

PROMPT_TEXT = "Hmm, hmm, hmm."
PROMPT_TOKENS = 36
"""Fourteen short of the second border of the 25-token grid: the first hop is longer than what the vocoder holds back, so it sounds."""


def voices(draws: Draws) -> dict[str, dict[str, Tensor]]:
    """`hum_high` in the zero-shot layout, `hum_low` in the sft layout."""
    text = torch.tensor([list(PROMPT_TEXT.encode())], dtype=torch.int32)
    speech = draws.below("prompt tokens", SPEECH_VOCABULARY, PROMPT_TOKENS)[None]
    mel = _prompt_mel()
    high = _embedding(draws, "hum_high", 1.0)
    zero_shot = {
        "prompt_text": text,
        "llm_prompt_speech_token": speech,
        "flow_prompt_speech_token": speech,
        "prompt_speech_feat": mel,
        "llm_embedding": high,
        "flow_embedding": high,
    }
    lengths = {f"{name}_len": _length(zero_shot[name]) for name in list(zero_shot) if not name.endswith("embedding")}
    return {"hum_high": zero_shot | lengths, "hum_low": {"embedding": _embedding(draws, "hum_low", -1.0)}}


def _length(value: Tensor) -> Tensor:
    return torch.tensor([value.shape[1]], dtype=torch.int32)


def _embedding(draws: Draws, name: str, towards: float) -> Tensor:
    return towards * voice_direction(draws, SPEAKER_DIMENSION)[None] + draws.normal(name, (1, SPEAKER_DIMENSION), 0.02)


def _prompt_mel() -> Tensor:
    """float32 [1, 2 * PROMPT_TOKENS, 80]: a hum of 180 Hz that swells three times. To two digits, so that every machine writes the same."""
    time = torch.arange(PROMPT_TOKENS * SAMPLES_PER_TOKEN, dtype=torch.float64) / SAMPLE_RATE
    seconds = PROMPT_TOKENS * SAMPLES_PER_TOKEN / SAMPLE_RATE
    swell = torch.sin(math.pi * 3 * time / seconds).square() + 0.05
    wave = sum((0.3 / partial * torch.sin(2 * math.pi * 180 * partial * time) for partial in range(1, 13)), torch.zeros_like(time))
    mel = mel_spectrogram((0.5 * swell * wave).to(torch.float32)[None])
    return (mel.transpose(1, 2) * 100).round() / 100
