"""The vocoder against the reference, by the network that the directory holds: every array of
hift.npz and token2wav_stream.npz. HiFT is compared here, causal HiFT by
`tools.verify.causal_hift`.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.causal.weights import NETWORK as CAUSAL
from services.token2wav.vocoder.hift_vocoder import (
    OVERLAP_SAMPLES,
    HiftVocoder,
    crossfade,
    hamming_window,
    load_hift,
)
from services.token2wav.vocoder.time_stretch import MelStretch
from tools.verify import causal_hift
from tools.verify.recording import Recording, compare_file
from tools.verify.report import Report

SPEED = 1.25


def verify(directory: Path, report: Report) -> None:
    """Compare the vocoder of `directory` with its recorded outputs; an array that nothing compares
    is reported missing.
    """
    model = ModelDirectory(directory)
    if generation_of(model).vocoder_network == CAUSAL:
        causal_hift.verify(directory, report)
        return
    vocoder = load_hift(model, torch.device("cpu"))
    compare_file(directory, "hift.npz", report, partial(_network, vocoder))
    compare_file(directory, "token2wav_stream.npz", report, partial(_stream, vocoder, directory))


def _network(vocoder: HiftVocoder, recorded: Recording) -> None:
    mel, noise = recorded.tensor("mel"), recorded.tensor("sine_noise")
    frames = mel.shape[2]
    samples = SAMPLES_PER_MEL_FRAME * frames
    plan = vocoder.filter.plan(0, frames, frames)
    silence = torch.zeros_like(noise)
    given = recorded.tensor("source")[:, 0]
    recorded.use("rand_ini")  # has no effect on any output
    plain = vocoder.render_upstream(mel[0], silence, None, None)
    recorded.compare_all({
        "f0": (2e-3, lambda: vocoder.f0(mel)),
        "source": (1e-3, lambda: vocoder.source.generate(vocoder.f0(mel), None, noise, ended=True)[0][:, None]),
        "source_stft": (1e-5, lambda: vocoder.filter.spectrum.analyse(given, plan.spectrum, samples)),
        "conv_pre_out": (1e-5, lambda: vocoder.filter.conv_pre(mel, plan)),
        "conv_post_out": (1e-5, lambda: vocoder.filter.conv_post(mel, given, plan)),
        "wav": (2e-5, lambda: vocoder.filter(mel, given, 0, frames)),
        "wav_zero_noise": (2e-3, lambda: plain[0][None]),
        "source_zero_noise": (1e-3, lambda: plain[1][None, None]),
    })  # fmt: skip
    cached = vocoder.render_upstream(mel[0], silence, recorded.tensor("cache_source")[0, 0], None)
    recorded.compare_all({
        "wav_with_cache_source_zero_noise": (2e-3, lambda: cached[0][None]),
        "source_with_cache_zero_noise": (1e-3, lambda: cached[1][None, None]),
    })  # fmt: skip
    f0, stride = recorded.tensor("sinegen_f0")[None], int(recorded["sinegen_stride"])
    tolerance = 1e-3 * max(1.0, f0.shape[1] / 50)
    recorded.compare(
        "sinegen_waves_zero_noise_sub", tolerance, lambda: vocoder.source.waves(f0, None, ended=True)[0][:, ::stride]
    )


def _stream(vocoder: HiftVocoder, directory: Path, recorded: Recording) -> None:
    with np.load(directory / "flow_mel.npz") as flow:
        mel = torch.from_numpy(flow["mel_offline"])
    recorded.compare_all({
        "hamming_window": (1e-12, hamming_window),
        "speed_1p25_mel": (5e-5, lambda: MelStretch.offline(mel[0], SPEED)[None]),
        "offline_wav": (2e-5, lambda: vocoder.filter(mel, recorded.tensor("offline_source")[:, 0], 0, mel.shape[2])),
    })  # fmt: skip
    calls, window = int(recorded["n_calls"]), hamming_window()
    speech: Tensor | None = None
    for call in range(calls):
        call_mel, source = recorded.tensor(f"hift_mel{call}"), recorded.tensor(f"hift_source{call}")[:, 0]
        # How much of hift_source was cached: unused by a check with the whole recorded source.
        recorded.use(f"cache_source_len{call}")
        samples = vocoder.filter(call_mel, source, 0, call_mel.shape[2])[0]
        faded = samples if speech is None else crossfade(samples, speech, window)
        speech = faded[-OVERLAP_SAMPLES:]
        emitted = faded if call == calls - 1 else faded[:-OVERLAP_SAMPLES]
        recorded.compare(f"wav_chunk{call}", 2e-5, partial(emitted.unsqueeze, 0))
