"""The vocoder as it will be served, on sentences it has never heard."""

import math
import wave
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from recipes.demo_voice.speech import Speech
from recipes.demo_voice.vocoder import losses
from services.frontend.features.mel import mel_spectrogram
from services.token2wav.vocoder.config import VocoderConfig
from services.token2wav.vocoder.vocoder import Vocoder

UTTERANCES = 32


class HeldOut:
    """A few held-out utterances, all voices in turn."""

    def __init__(self, speech: Speech, f0: Tensor, first_frames: list[int], config: VocoderConfig) -> None:
        """f0, first_frames: of `pitch.of_speech`."""
        self._config, self._device = config, speech.audio.device
        every = max(1, len(speech.held_out) // UTTERANCES)
        members = speech.held_out[::every][:UTTERANCES]
        self._waves = [speech.wave(member) for member in members]
        frames = [speech.utterances[member].samples // SAMPLES_PER_MEL_FRAME for member in members]
        self._f0 = [f0[first_frames[member] :][:count] for member, count in zip(members, frames, strict=True)]

    @torch.no_grad()
    def measure(self, weights: Mapping[str, Tensor]) -> dict[str, float]:
        """weights: float32, fused.

        mel: mean absolute difference of log-mels in nepers. spectra: of log magnitudes, see `losses.spectral_distance`. cents: median
        error of f0 where both are voiced, left out where nothing is. voicing: part of the frames voiced in one and not in the other.
        """
        if not self._waves:
            return {}
        rows, predicted = [], []
        for true, made, f0 in self._spoken(weights):
            mel = (mel_spectrogram(made) - mel_spectrogram(true)).abs().mean()
            rows.append(torch.stack([mel, losses.spectral_distance(made, true)]))
            predicted.append(f0[0])
        found, wanted = torch.cat(predicted), torch.cat(self._f0)
        both = (found > self._config.nsf_voiced_threshold) & (wanted > 0)
        cents = torch.where(both, 1200 * torch.log2(found.clamp(min=1.0) / wanted.clamp(min=1.0)).abs(), torch.nan).nanmedian()
        voicing = ((found > self._config.nsf_voiced_threshold) != (wanted > 0)).float().mean()
        values = torch.cat([torch.stack(rows).mean(dim=0), torch.stack([cents, voicing])]).tolist()
        found_values = zip(("held_out_mel", "held_out_spectra", "held_out_cents", "held_out_voicing"), values, strict=True)
        return {name: value for name, value in found_values if math.isfinite(value)}

    @torch.no_grad()
    def write(self, weights: Mapping[str, Tensor], folder: Path, count: int = 2) -> None:
        """The first `count` sentences as generated, `<n>.wav`, and as they were, `<n>-true.wav`."""
        for index, (true, made, _) in zip(range(count), self._spoken(weights), strict=False):
            write_wav(folder / f"{index}.wav", made[0])
            write_wav(folder / f"{index}-true.wav", true[0])

    def _spoken(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """True and generated sound [1, samples] and predicted f0 [1, frames] of each utterance."""
        vocoder = Vocoder(self._config, dict(weights), self._device)
        generator = torch.Generator(self._device).manual_seed(0)
        for true in self._waves:
            mel = mel_spectrogram(true[None])
            # Lengths differ: searching the fastest algorithm for each would take longer than the work itself.
            with torch.backends.cudnn.flags(enabled=True, benchmark=False):
                f0 = vocoder.f0(mel)
                noise = torch.randn(1, true.shape[0], self._config.harmonics, generator=generator, device=self._device)
                source, _ = vocoder.source.generate(f0, None, noise, ended=True)
                made = vocoder.filter(mel, source, 0, mel.shape[2])
            yield true[None], made, f0


def write_wav(path: Path, samples: Tensor) -> None:
    """float32 [samples] in [-1, 1] as 16-bit mono at 24 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes((samples.clamp(-1, 1) * 32767).round().to("cpu", torch.int16).numpy().astype("<i2").tobytes())
