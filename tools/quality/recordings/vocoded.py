"""Prompts as the model's own vocoder gives them back from their mel."""

from collections.abc import Iterable

import numpy as np
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLE_RATE
from services.frontend.voices.voice import Voice
from services.token2wav.vocoder.vocoder import load_vocoder
from tools.quality.recordings.recording import Recording
from tools.quality.recordings.sentences import Sentence


@torch.inference_mode()
def vocoded_prompts(directory: ModelDirectory, voices: Iterable[Voice]) -> dict[str, Recording]:
    """By voice; those that have a prompt. Raises ModelError for a vocoder that cannot be read."""
    vocoder = load_vocoder(directory, torch.device("cpu"))
    prompts = {}
    for number, voice in enumerate(voices, 1):
        if voice.prompt_mel:
            mel = torch.from_numpy(np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, MEL_BINS).T.astype(np.float32))
            samples = vocoder.offline(mel, seed=0, sentence=0).numpy()
            prompts[voice.id] = Recording(Sentence(number, voice.id), samples, SAMPLE_RATE)
    return prompts
