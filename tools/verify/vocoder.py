"""Vocoder against the reference: every array of hift.npz and token2wav_stream.npz."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import OVERLAP_SAMPLES, Vocoder, crossfade, hamming_window, load_vocoder
from tools.verify.report import Report

Arrays = dict[str, NDArray[np.generic]]
SPEED = 1.25


@torch.inference_mode()
def verify(directory: Path, report: Report) -> None:
    """Compare the vocoder of `directory` with its recorded outputs; an array that nothing compares
    is reported missing.
    """
    vocoder = load_vocoder(ModelDirectory(directory), torch.device("cpu"))
    for name, check in (("hift", _network), ("token2wav_stream", _stream)):
        path = directory / f"{name}.npz"
        if not path.exists():
            report.missing(path.name, "not in the directory")
            continue
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        seen = _Seen(name, arrays, report)
        try:
            check(vocoder, directory, seen)
        except KeyError as error:
            report.missing(f"{path.name}/{error.args[0]}", f"{path.name} does not hold this input")
        seen.report_rest()


class _Seen:
    """Remembers which arrays have been used, as input or as expected output."""

    def __init__(self, name: str, arrays: Arrays, report: Report) -> None:
        self._name, self._arrays, self._report = name, arrays, report
        self._used: set[str] = set()

    def get(self, key: str) -> Tensor:
        self._used.add(key)
        return torch.from_numpy(self._arrays[key])

    def compare(self, key: str, compute: Callable[[], Tensor], tolerance: float) -> None:
        if key not in self._arrays:
            self._report.missing(f"{self._name}.npz/{key}", "not in the file")
            return
        want = self.get(key).numpy()
        try:
            got = compute().numpy()
        except (RuntimeError, IndexError, ValueError) as error:
            self._report.missing(f"{self._name}.npz/{key}", f"{type(error).__name__}: {error}")
            return
        self._report.compare(f"{self._name}.npz/{key}", got, want, tolerance)

    def report_rest(self) -> None:
        for key in self._arrays:
            if key not in self._used:
                self._report.missing(f"{self._name}.npz/{key}", "unknown array")


def _network(vocoder: Vocoder, directory: Path, seen: _Seen) -> None:
    mel, noise = seen.get("mel"), seen.get("sine_noise")
    frames = mel.shape[2]
    samples = SAMPLES_PER_MEL_FRAME * frames
    plan = vocoder.filter.plan(0, frames, frames)
    silence = torch.zeros_like(noise)
    given = seen.get("source")[:, 0]
    seen.get("rand_ini")  # has no effect on any output
    seen.compare("f0", lambda: vocoder.f0(mel), 2e-3)
    seen.compare("source", lambda: vocoder.source.generate(vocoder.f0(mel), None, noise, ended=True)[0][:, None], 1e-3)
    seen.compare("source_stft", lambda: vocoder.filter.spectrum.analyse(given, plan.spectrum, samples), 1e-5)
    seen.compare("conv_pre_out", lambda: vocoder.filter.conv_pre(mel, plan), 1e-5)
    seen.compare("conv_post_out", lambda: vocoder.filter.conv_post(mel, given, plan), 1e-5)
    seen.compare("wav", lambda: vocoder.filter(mel, given, 0, frames), 2e-5)
    plain = vocoder.render_upstream(mel[0], silence, None, None)
    seen.compare("wav_zero_noise", lambda: plain[0][None], 2e-3)
    seen.compare("source_zero_noise", lambda: plain[1][None, None], 1e-3)
    cached = vocoder.render_upstream(mel[0], silence, seen.get("cache_source")[0, 0], None)
    seen.compare("wav_with_cache_source_zero_noise", lambda: cached[0][None], 2e-3)
    seen.compare("source_with_cache_zero_noise", lambda: cached[1][None, None], 1e-3)
    f0, stride = seen.get("sinegen_f0")[None], int(seen.get("sinegen_stride"))
    tolerance = 1e-3 * max(1.0, f0.shape[1] / 50)
    seen.compare(
        "sinegen_waves_zero_noise_sub", lambda: vocoder.source.waves(f0, None, ended=True)[0][:, ::stride], tolerance
    )


def _stream(vocoder: Vocoder, directory: Path, seen: _Seen) -> None:
    window = hamming_window()
    seen.compare("hamming_window", hamming_window, 1e-12)
    with np.load(directory / "flow_mel.npz") as flow:
        mel = torch.from_numpy(flow["mel_offline"])
    seen.compare("speed_1p25_mel", lambda: MelStretch.offline(mel[0], SPEED)[None], 5e-5)
    offline_source = seen.get("offline_source")[:, 0]
    seen.compare("offline_wav", lambda: vocoder.filter(mel, offline_source, 0, mel.shape[2]), 2e-5)
    calls = int(seen.get("n_calls"))
    speech: Tensor | None = None
    for call in range(calls):
        call_mel, source = seen.get(f"hift_mel{call}"), seen.get(f"hift_source{call}")[:, 0]
        # How much of hift_source was cached, which a check with the whole recorded source has no
        # use for.
        seen.get(f"cache_source_len{call}")
        samples = vocoder.filter(call_mel, source, 0, call_mel.shape[2])[0]
        faded = samples if speech is None else crossfade(samples, speech, window)
        speech = faded[-OVERLAP_SAMPLES:]
        emitted = faded if call == calls - 1 else faded[:-OVERLAP_SAMPLES]
        seen.compare(f"wav_chunk{call}", partial(emitted.unsqueeze, 0), 2e-5)
