"""Prompt features against `features.npz`: mel, Kaldi filterbank, Whisper log-mel, resampler."""

from pathlib import Path

import torch

from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.features.fbank import kaldi_fbank, speaker_features
from services.frontend.prompts.features.mel import mel_basis, mel_spectrogram
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.features.whisper_mel import whisper_filters, whisper_log_mel
from tools.verify.recording import Recording, compare_file
from tools.verify.report import Report

FILE = "features.npz"


def verify(directory: Path, report: Report) -> None:
    """Recompute every array of `features.npz` from its test signals and compare."""
    highest = generation_of(ModelDirectory(directory)).mel_highest_hertz
    compare_file(directory, FILE, report, lambda recorded: _check(recorded, highest))


def _check(recorded: Recording, highest_hertz: float) -> None:
    """highest_hertz: upper edge of the mel filters at 24 kHz."""
    wave = recorded.tensor
    recorded.compare_all({
        "mel24k": (1e-4, lambda: mel_spectrogram(wave("wav24k"), highest_hertz)),
        "mel_basis_24k": (1e-7, lambda: mel_basis(torch.device("cpu"), highest_hertz)),
        "kaldi_fbank80": (1e-3, lambda: kaldi_fbank(wave("wav16k")[0])),
        "kaldi_fbank80_meansub": (1e-3, lambda: speaker_features(wave("wav16k")[0])),
        "whisper_logmel128": (1e-4, lambda: whisper_log_mel(wave("wav16k"))),
        "whisper_mel_filters_128": (1e-7, lambda: whisper_filters(torch.device("cpu"))),
        "resample_24k_to_16k": (1e-5, lambda: resample(wave("wav24k"), 24_000, 16_000)),
        "resample_16k_to_24k": (1e-5, lambda: resample(wave("wav16k"), 16_000, 24_000)),
        "resample_44k1_to_16k": (1e-5, lambda: resample(wave("wav44k"), 44_100, 16_000)),
        "resample_44k1_to_24k": (1e-5, lambda: resample(wave("wav44k"), 44_100, 24_000)),
    })  # fmt: skip
