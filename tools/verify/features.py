"""Prompt features against `features.npz`: mel, Kaldi filterbank, Whisper log-mel, resampler."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from services.frontend.prompts.features.fbank import kaldi_fbank, speaker_features
from services.frontend.prompts.features.mel import mel_basis, mel_spectrogram
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.features.whisper_mel import whisper_filters, whisper_log_mel
from tools.verify.report import Report

FILE = "features.npz"
_INPUTS = ("wav24k", "wav16k", "wav44k")
_RECIPES: dict[str, tuple[float, Callable[[dict[str, Tensor]], Tensor]]] = {
    "mel24k": (1e-4, lambda waves: mel_spectrogram(waves["wav24k"])),
    "mel_basis_24k": (1e-7, lambda waves: mel_basis(torch.device("cpu"))),
    "kaldi_fbank80": (1e-3, lambda waves: kaldi_fbank(waves["wav16k"][0])),
    "kaldi_fbank80_meansub": (1e-3, lambda waves: speaker_features(waves["wav16k"][0])),
    "whisper_logmel128": (1e-4, lambda waves: whisper_log_mel(waves["wav16k"])),
    "whisper_mel_filters_128": (1e-7, lambda waves: whisper_filters(torch.device("cpu"))),
    "resample_24k_to_16k": (1e-5, lambda waves: resample(waves["wav24k"], 24_000, 16_000)),
    "resample_16k_to_24k": (1e-5, lambda waves: resample(waves["wav16k"], 16_000, 24_000)),
    "resample_44k1_to_16k": (1e-5, lambda waves: resample(waves["wav44k"], 44_100, 16_000)),
    "resample_44k1_to_24k": (1e-5, lambda waves: resample(waves["wav44k"], 44_100, 24_000)),
}
"""Array name to tolerance and how it is made from the test signals."""


def verify(directory: Path, report: Report) -> None:
    """Recompute every array of `features.npz` from its test signals and compare."""
    path = directory / FILE
    if not path.exists():
        report.missing(FILE, "no such file in the bundle")
        return
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    absent = [name for name in _INPUTS if name not in arrays]
    for name in absent:
        report.missing(f"{FILE}/{name}", "a test signal that the other arrays are made from is not in the bundle")
    for name in sorted(_RECIPES.keys() - arrays.keys()):
        report.missing(f"{FILE}/{name}", "not in the bundle")
    waves = {name: torch.from_numpy(arrays[name]) for name in _INPUTS if name in arrays}
    for name, want in arrays.items():
        if name in _INPUTS:
            continue
        if name not in _RECIPES:
            report.missing(f"{FILE}/{name}", "unknown array: there is no recipe for it")
        elif absent:
            report.missing(f"{FILE}/{name}", "its test signal is missing")
        else:
            tolerance, recipe = _RECIPES[name]
            report.compare(f"{FILE}/{name}", recipe(waves).numpy(), want, tolerance)
