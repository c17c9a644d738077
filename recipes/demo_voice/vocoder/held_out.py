"""`python -m recipes.demo_voice.vocoder.held_out WORK`: the vocoder as it will be served, on
sentences it has never heard.

Reads what the training wrote into WORK/NAME, adds a line to its journal. The training runs this as
a process of its own: cuFFT refuses plans for new lengths in a process that replays CUDA graphs.
"""

import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.audio.wav import wav_header
from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule
from recipes.demo_voice.training.speech import Speech
from recipes.demo_voice.vocoder import objective
from services.frontend.prompts.features.mel import mel_spectrogram
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.weights import FILE, VocoderConfig, read_config

UTTERANCES = 32
SENTENCES = "held_out.pt"


class HeldOut:
    """A few held-out utterances, all voices in turn."""

    def __init__(
        self, config: VocoderConfig, waves: Sequence[Tensor], f0: Sequence[Tensor], device: torch.device
    ) -> None:
        """waves: float32 [samples] each. f0: [frames] of each, Hz."""
        self._config, self._device = config, device
        self._waves, self._f0 = [wave.to(device) for wave in waves], [values.to(device) for values in f0]

    @classmethod
    def of(cls, speech: Speech, f0: Tensor, first_frames: list[int], config: VocoderConfig) -> "HeldOut":
        """f0, first_frames: of `pitch.of_speech`."""
        every = max(1, len(speech.held_out) // UTTERANCES)
        members = speech.held_out[::every][:UTTERANCES]
        frames = [speech.utterances[member].samples // SAMPLES_PER_MEL_FRAME for member in members]
        pitches = [f0[first_frames[member] :][:count] for member, count in zip(members, frames, strict=True)]
        return cls(config, [speech.wave(member) for member in members], pitches, speech.audio.device)

    @classmethod
    def read(cls, path: Path, config: VocoderConfig, device: torch.device) -> "HeldOut":
        """What `save` wrote."""
        content = parameter_store.load(path, device)
        return cls(config, content["waves"], content["f0"], device)

    def save(self, path: Path) -> None:
        parameter_store.save(
            path, {"waves": [wave.clone() for wave in self._waves], "f0": [values.clone() for values in self._f0]}
        )

    @torch.no_grad()
    def measure(self, weights: Mapping[str, Tensor]) -> dict[str, float]:
        """weights: float32, fused.

        mel: mean absolute difference of log-mels in nepers. spectra: of log magnitudes, see
        `objective.spectral_distance`. cents: median error of f0 where both are voiced, left out
        where nothing is. voicing: part of the frames voiced in one and not in the other.
        """
        if not self._waves:
            return {}
        rows, predicted = [], []
        for true, generated, f0 in self._spoken(weights):
            mel = (mel_spectrogram(generated) - mel_spectrogram(true)).abs().mean()
            rows.append(torch.stack([mel, objective.spectral_distance(generated, true)]))
            predicted.append(f0[0])
        pitch, wanted = torch.cat(predicted), torch.cat(self._f0)
        both = (pitch > self._config.nsf_voiced_threshold) & (wanted > 0)
        cents = torch.where(
            both, 1200 * torch.log2(pitch.clamp(min=1.0) / wanted.clamp(min=1.0)).abs(), torch.nan
        ).nanmedian()
        voicing = ((pitch > self._config.nsf_voiced_threshold) != (wanted > 0)).float().mean()
        values = torch.cat([torch.stack(rows).mean(dim=0), torch.stack([cents, voicing])]).tolist()
        named_values = zip(
            ("held_out_mel", "held_out_spectra", "held_out_cents", "held_out_voicing"), values, strict=True
        )
        return {name: value for name, value in named_values if math.isfinite(value)}

    @torch.no_grad()
    def write(self, weights: Mapping[str, Tensor], folder: Path, count: int = 2) -> None:
        """The first `count` sentences as generated, `<n>.wav`, and as they were, `<n>-true.wav`."""
        for index, (true, generated, _) in zip(range(count), self._spoken(weights), strict=False):
            write_wav(folder / f"{index}.wav", generated[0])
            write_wav(folder / f"{index}-true.wav", true[0])

    def _spoken(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """True and generated sound [1, samples] and predicted f0 [1, frames] of each utterance."""
        vocoder = HiftVocoder(self._config, dict(weights), self._device)
        generator = torch.Generator(self._device).manual_seed(0)
        for true in self._waves:
            mel = mel_spectrogram(true[None])
            # Lengths differ: searching the fastest algorithm for each would take longer than the
            # work itself.
            with torch.backends.cudnn.flags(enabled=True, benchmark=False):
                f0 = vocoder.f0(mel)
                noise = torch.randn(1, true.shape[0], self._config.harmonics, generator=generator, device=self._device)
                source, _ = vocoder.source.generate(f0, None, noise, ended=True)
                generated = vocoder.filter(mel, source, 0, mel.shape[2])
            yield true[None], generated, f0


def write_wav(path: Path, samples: Tensor) -> None:
    """float32 [samples] in [-1, 1] as 16-bit mono at 24 kHz."""
    whole = (samples.clamp(-1, 1) * 32767).round().to("cpu", torch.int16).numpy().astype("<i2")
    path.write_bytes(wav_header(SAMPLE_RATE, len(whole)) + whole.tobytes())


class HeldOutProcess:
    """Measures the files of a training in a process of its own, while the training goes on."""

    def __init__(self, work: Path, name: str, device: torch.device) -> None:
        self._command = [
            sys.executable,
            "-m",
            "recipes.demo_voice.vocoder.held_out",
            str(work),
            "--name",
            name,
            "--device",
            str(device),
        ]
        self._running: subprocess.Popen[bytes] | None = None
        self._began = time.monotonic()

    def measure(self, schedule: Schedule, *, least_apart: float = 0.0) -> None:
        """Begin, unless the last one has not ended or less than `least_apart` seconds have passed
        since it, or the training, began.
        """
        if time.monotonic() - self._began < least_apart:
            return
        if self._running is None or self._running.poll() is not None:
            self._began = time.monotonic()
            place = ["--step", str(schedule.step), "--seconds", f"{schedule.seconds:.1f}"]
            self._running = subprocess.Popen(self._command + place)

    def finish(self) -> None:
        """Wait for the one that runs."""
        if self._running is not None and self._running.wait():
            print(f"vocoder: measuring held-out sentences failed with status {self._running.returncode}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = commands.stage("vocoder.held_out", __doc__, "work folder")
    parser.add_argument("--name", default="vocoder", help="folder of the training in WORK")
    commands.add_device(parser)
    parser.add_argument("--step", type=int, default=0, help="of the training, for the journal")
    parser.add_argument("--seconds", type=float, default=0.0, help="of the training, for the journal")
    options = parser.parse_args(arguments)
    folder, device = options.work / options.name, torch.device(options.device)
    held_out = HeldOut.read(folder / SENTENCES, read_config(model_directory(options.work)), device)
    weights = {name: tensor.float() for name, tensor in parameter_store.load(folder / FILE, device).items()}
    journal = Journal(folder, options.name, Schedule(1, spent=options.seconds, step=options.step))
    journal.report(held_out.measure(weights))
    held_out.write(weights, folder)


if __name__ == "__main__":
    main()
