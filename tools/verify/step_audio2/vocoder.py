"""The vocoder of a Step-Audio2 directory against `vocoder.npz`: the reference's calls with overlap
and cross-fade, for the mel that it recorded.

Phase is a sum of f0, and f0 is rounded differently by every processor: the reference's own class,
on another one, is as far from the recorded waves as ours. So waves are compared closely where the
bundle has the source that they were made of, and with what a rounding of f0 may change elsewhere.
"""

from collections.abc import Iterator
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
"""Tolerances: of samples for the recorded source, of the source for a given mel, and of f0 in
Hz.
"""
OWN_CALL, OWN_WHOLE = 5e-3, 2e-2
"""Of samples for our own source, whose difference grows over a call or a whole sentence."""
_GIVEN, _HEAD_FRAMES = " (recorded source)", 20


def verify(directory: Path, report: Report) -> None:
    """Compare every array of the file."""
    model = ModelDirectory(directory)
    config = read_config(model)
    vocoder = _Silent(config, load_weights(model, config), torch.device("cpu"))
    with np.load(directory / "mel.npz") as mels, np.load(directory / "stream.npz") as stream:
        offline = torch.from_numpy(mels["A_offline"])[0]
        calls = {
            f"A_{name}": [
                torch.from_numpy(stream[f"A_{name}_mel{at}"])[0] for at in range(len(stream[f"A_{name}_calls"]))
            ]
            for name in ("step", "triton")
        }
    compare_file(directory, "vocoder.npz", report, partial(_compare, vocoder, offline, calls))


class _Silent(HiftVocoder):
    """The noise of its source is zero; the source is the recorded one where there is one.
    f0_heard, source_heard: of the last call.
    """

    recorded: Iterator[Tensor] = iter(())
    f0_heard: Tensor
    source_heard: Tensor

    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        return torch.zeros(1, end - first, self.config.harmonics)

    def _sentence_source(self, mel: Tensor, noise: Tensor, stop: Stop) -> Tensor:
        self.f0_heard = self.f0(mel)
        given = next(self.recorded, None)
        return super()._sentence_source(mel, noise, stop) if given is None else given

    def render_upstream(
        self, mel: Tensor, noise: Tensor, source: Tensor | None, speech: Tensor | None, *, stop: Stop = never
    ) -> tuple[Tensor, Tensor]:
        samples, self.source_heard = super().render_upstream(mel, noise, source, speech, stop=stop)
        return samples, self.source_heard


def _compare(vocoder: _Silent, offline: Tensor, calls: dict[str, list[Tensor]], recorded: Recording) -> None:
    silence = vocoder.noise(0, 0, 0, recorded["A_offline_wav"].shape[1])
    samples, source = vocoder.render_upstream(offline, silence, None, None)
    noisy = recorded.tensor("noisy_mel"), recorded.tensor("noisy_noise")
    heard = vocoder.render_upstream(noisy[0][0], noisy[1], None, None)
    head, noisy_source = recorded.tensor("A_offline_source_head")[:, 0], recorded.tensor("noisy_source")[:, 0]
    recorded.compare_all({
        "window": (1e-7, hamming_window),
        "A_offline_wav": (OWN_WHOLE, partial(samples.unsqueeze, 0)),
        "A_offline_source_head": (SOURCE, lambda: source[None, None, : head.shape[1]]),
        "noisy_source": (SOURCE, lambda: heard[1][None, None]),
        "noisy_wav": (OWN_CALL, partial(heard[0].unsqueeze, 0)),
        f"noisy_wav{_GIVEN}": (SAMPLES, lambda: vocoder.filter(noisy[0], noisy_source, 0, noisy[0].shape[2])),
    })  # fmt: skip
    recorded.compare(
        f"A_offline_wav{_GIVEN}",
        SAMPLES,
        lambda: vocoder.filter(offline[None], head, 0, _HEAD_FRAMES)[0],
        beginning=True,
    )
    for name, mels in calls.items():
        _stream(vocoder, name, mels, recorded)
        sources = [f"{name}_source{at}" for at in range(len(mels))]
        given = [recorded.tensor(source)[:, 0] for source in sources if source in recorded]
        vocoder.recorded = iter(given)
        _stream(vocoder, name, mels, recorded, given=len(given))


def _stream(vocoder: _Silent, name: str, mels: list[Tensor], recorded: Recording, given: int | None = None) -> None:
    """given: of so many calls the source is recorded; None: it is our own."""
    state = UpstreamVocoderState(seed=0, sentence=0)
    for at, mel in enumerate(mels[:given]):
        if f"{name}_wav{at}" not in recorded:
            break
        wave = vocoder.step_upstream(state, mel, at == len(mels) - 1)[None]
        if given is not None:
            recorded.compare(f"{name}_wav{at}{_GIVEN}", SAMPLES, partial(torch.clone, wave))
            continue
        recorded.compare(f"{name}_wav{at}", OWN_CALL, partial(torch.clone, wave))
        if f"{name}_f0_{at}" in recorded:
            recorded.compare(f"{name}_f0_{at}", PITCH, partial(torch.clone, vocoder.f0_heard))
            recorded.compare(f"{name}_source{at}", SOURCE, partial(torch.clone, vocoder.source_heard[None, None]))
