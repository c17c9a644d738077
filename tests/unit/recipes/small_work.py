"""A work folder small enough for a unit test: two made-up voices that hum each phone at a pitch of
its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN
from recipes.demo_voice import features
from recipes.demo_voice.model_files import layout
from recipes.demo_voice.training.speech import Recording
from services.frontend.tokenizers.phonemes.symbols import PHONES, SYMBOLS

VOICES = {"low": 110.0, "high": 190.0}
"""Name and pitch of the hum, Hz."""
SENTENCES = {
    "train": ("wˈʌn tˈu.", "θɹˈi fˈɔɹ.", "fˈIv sˈɪks.", "sˈɛvən."),
    "held_out": ("ˈAt nˈIn.",),
    "quality": ("tˈɛn.",),
}
TOKENS_PER_PHONE = 3


def make(work: Path) -> Path:
    """Fill `work` as preparation, synthesis and features would; every voice speaks every sentence.
    Returns `work`.
    """
    phonemes = [(split, said) for split, sentences in SENTENCES.items() for said in sentences]
    _write(work / "model" / "phonemes" / "symbols.json", json.dumps(SYMBOLS, ensure_ascii=False))
    lines = [f"{number}\t{split}\tsentence {number}\t{said}\n" for number, (split, said) in enumerate(phonemes)]
    _write(work / "text" / "sentences.tsv", "".join(lines))
    for shard, (voice, pitch) in enumerate(VOICES.items()):
        waves = [hum(said, pitch) for _, said in phonemes]
        starts = [0, *np.cumsum([len(wave) for wave in waves]).tolist()]
        table = [Recording(number, voice, 1.0, starts[number], len(wave)).line() for number, wave in enumerate(waves)]
        _write(work / "speech" / f"{shard:02d}.tsv", "".join(table))
        np.concatenate(waves).tofile(work / "speech" / f"{shard:02d}.s16")
    features.compute(work, "cpu", 1)
    return work


def hum(phonemes: str, pitch: float) -> np.ndarray:
    """int16 [samples]: harmonics of `pitch` under one resonance per phone, soft at both ends of the
    phone.
    """
    times = np.arange(TOKENS_PER_PHONE * SAMPLES_PER_TOKEN) / SAMPLE_RATE
    harmonics = np.arange(1, 30)
    waves = np.sin(2 * np.pi * pitch * harmonics[:, None] * times)
    loudness = 0.1 + 0.9 * np.minimum(1.0, np.minimum(times, times[::-1]) / 0.02)
    spoken = [PHONES.index(symbol) for symbol in phonemes if symbol in PHONES]
    resonances = [np.exp(-(((harmonics * pitch - 250 - 75 * phone) / 150) ** 2)) + 0.02 for phone in spoken]
    parts = [6000 * loudness * (resonance @ waves) / np.linalg.norm(resonance) for resonance in resonances]
    return np.concatenate(parts).clip(-32767, 32767).astype("<i2")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def smaller(work: Path, sizes: Mapping[str, str]) -> ModelDirectory:
    """The model directory of `work` with each of these places of its yaml replaced."""
    directory = layout.model_directory(work)
    yaml = layout.YAML
    for usual, small in sizes.items():
        assert usual in yaml
        yaml = yaml.replace(usual, small)
    (directory.path / "cosyvoice2.yaml").write_text(yaml, encoding="utf-8")
    return directory
