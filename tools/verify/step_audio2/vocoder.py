"""The vocoder of a Step-Audio2 directory against `vocoder.npz`: the reference's calls with overlap
and cross-fade, for the mel that it recorded.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.inputs.request import Stop, never
from services.token2wav.vocoder.hift_vocoder import HiftVocoder, hamming_window
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.weights import load_weights, read_config
from tools.verify.recording import Recording, compare_file
from tools.verify.report import Report

SAMPLES, SOURCE, PITCH = 2e-5, 2e-3, 1e-3


def verify(directory: Path, report: Report) -> None:
    """Compare every array of the file."""
    model = ModelDirectory(directory)
    config = read_config(model)
    vocoder = _SilentNoise(config, load_weights(model, config), torch.device("cpu"))
    with np.load(directory / "mel.npz") as mels, np.load(directory / "stream.npz") as stream:
        offline = torch.from_numpy(mels["A_offline"])
        calls = {
            name: [torch.from_numpy(stream[f"A_{name}_mel{at}"])[0] for at in range(len(stream[f"A_{name}_calls"]))]
            for name in ("step", "triton")
        }
    compare_file(directory, "vocoder.npz", report, partial(_compare, vocoder, offline, calls))


class _SilentNoise(HiftVocoder):
    """The noise of its source is zero. `source_heard` and `f0_heard` are those of the last call."""

    source_heard: Tensor
    f0_heard: Tensor

    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        return torch.zeros(1, end - first, self.config.harmonics)

    def render_upstream(
        self, mel: Tensor, noise: Tensor, source: Tensor | None, speech: Tensor | None, *, stop: Stop = never
    ) -> tuple[Tensor, Tensor]:
        samples, self.source_heard = super().render_upstream(mel, noise, source, speech, stop=stop)
        self.f0_heard = self.f0(mel[None])
        return samples, self.source_heard


def _compare(vocoder: _SilentNoise, offline: Tensor, calls: dict[str, list[Tensor]], recorded: Recording) -> None:
    silence = vocoder.noise(0, 0, 0, recorded["A_offline_wav"].shape[1])
    samples, source = vocoder.render_upstream(offline[0], silence, None, None)
    head = recorded["A_offline_source_head"].shape[2]
    noisy = recorded.tensor("noisy_mel")[0], recorded.tensor("noisy_noise")
    heard = vocoder.render_upstream(*noisy, None, None)
    recorded.compare_all({
        "window": (1e-7, hamming_window),
        "A_offline_wav": (SAMPLES, lambda: samples[None]),
        "A_offline_source_head": (SOURCE, lambda: source[None, None, :head]),
        "noisy_source": (SOURCE, lambda: heard[1][None, None]),
        "noisy_wav": (SAMPLES, lambda: heard[0][None]),
    })  # fmt: skip
    for name, mels in calls.items():
        state = UpstreamVocoderState(seed=0, sentence=0)
        for at, mel in enumerate(mels):
            rows = {"wav": f"A_{name}_wav{at}", "source": f"A_{name}_source{at}", "f0": f"A_{name}_f0_{at}"}
            if rows["wav"] not in recorded:
                break
            wave = vocoder.step_upstream(state, mel, at == len(mels) - 1)
            recorded.compare(rows["wav"], SAMPLES, partial(wave.unsqueeze, 0))
            if rows["source"] in recorded:
                recorded.compare(rows["source"], SOURCE, partial(vocoder.source_heard[None].unsqueeze, 0))
                recorded.compare(rows["f0"], PITCH, partial(torch.clone, vocoder.f0_heard))
