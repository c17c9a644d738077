"""`python -m recipes.demo_voice.vocoder.train WORK`: the HiFT vocoder, adversarially, on the services' own network.

Needs speech/. Writes into WORK/NAME: `checkpoint.pt` (to go on from), `hift.pt` (averaged weights, half precision, weight norm fused),
journal.jsonl and journal.png, and two held-out sentences as WAV, generated and true.

At first spectra alone teach; then discriminators join. The source follows the tracked pitch at first and more and more the predicted one,
which is what it follows when served.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice import parameters as store
from recipes.demo_voice.layout import model_directory
from recipes.demo_voice.progress import Journal, Schedule
from recipes.demo_voice.speech import Speech
from recipes.demo_voice.vocoder import generator, losses, pitch
from recipes.demo_voice.vocoder.descent import Descent
from recipes.demo_voice.vocoder.discriminators import Discriminators
from recipes.demo_voice.vocoder.generator import Generator
from recipes.demo_voice.vocoder.held_out import HeldOut
from recipes.demo_voice.vocoder.segments import Draws, Segments, disturbed
from services.token2wav.vocoder.config import VocoderConfig, read_config
from services.token2wav.vocoder.weights import FILE, fused

BATCH, FRAMES = 32, 32
RATE, PITCH_RATE = 4e-4, 1e-3
ADVERSARIAL_FROM = 0.06
DECAY = 0.999
NOISE, BLUR, BLUR_FROM = 0.03, 0.3, 0.6
PREDICTED_FROM, PREDICTED_FULLY = 0.1, 0.4
"""Progress at which the first rows get their source from the predicted pitch, and at which PREDICTED_MOST of them do."""
PREDICTED_MOST = 0.8
SEED = 40
REPORT_SECONDS, MEASURE_SECONDS, SAVE_SECONDS = 20.0, 45.0, 60.0


class Training:
    """Generator, its average, discriminators and their optimisers, all on one device."""

    def __init__(self, config: VocoderConfig, draws: Draws, schedule: Schedule, device: torch.device, *, width: int = 32) -> None:
        """width: of the discriminators."""
        torch.manual_seed(SEED + schedule.step)
        self.config, self.draws, self.schedule, self.device = config, draws, schedule, device
        self.parameters = generator.make(config, device)
        self.average = store.Average(self.parameters, DECAY)
        self.discriminators = Discriminators(width).to(device)
        of_pitch = [tensor for name, tensor in self.parameters.items() if name.startswith(generator.PITCH)]
        of_sound = [tensor for name, tensor in self.parameters.items() if not name.startswith(generator.PITCH)]
        self.sound = Descent(of_sound, largest_norm=500.0)
        self.pitch = Descent(of_pitch, largest_norm=100.0)
        self.judges = Descent(list(self.discriminators.parameters()), largest_norm=10.0)
        self.judging_since: int | None = None
        self.adversarial_from = ADVERSARIAL_FROM

    def step(self, batch: int) -> dict[str, Tensor]:
        """One update; the terms stay on the device."""
        progress = self.schedule.progress
        segments = self.draws.next(batch)
        mel = disturbed(segments.mel, NOISE, BLUR if progress > BLUR_FROM else 0.0)
        network = Generator(self.config, self.parameters, self.device)
        predicted = network.pitch(mel)
        pitch_loss = _middle(predicted - segments.f0, segments).abs().mean()
        made = network.sound(mel, self._source_pitch(predicted.detach(), segments.f0, progress), segments.stretch)

        own, others = losses.mel_distance(made, segments.wave)
        terms = {"mel": own, "mels": others, "pitch": pitch_loss}
        outputs, slopes = [losses.MEL_WEIGHT * (own + others) / 2], [torch.ones_like(own)]
        judging = progress >= self.adversarial_from
        if judging:
            if self.judging_since is None:
                self.judging_since = self.schedule.step
            slope, found = self._judge(made, segments.wave)
            outputs.append(made)
            slopes.append(slope)
            terms |= found
        self.sound.step(torch.autograd.grad(outputs, self.sound.parameters, slopes), self.schedule.rate(RATE))
        self.pitch.step(torch.autograd.grad(pitch_loss, self.pitch.parameters), self.schedule.rate(PITCH_RATE))
        self.schedule.step += 1
        self.average.update(self.schedule.step)
        return {name: term.detach() for name, term in terms.items()} | {"norm": self.sound.norm}

    def _source_pitch(self, predicted: Tensor, tracked: Tensor, progress: float) -> Tensor:
        share = PREDICTED_MOST * min(1.0, max(0.0, (progress - PREDICTED_FROM) / (PREDICTED_FULLY - PREDICTED_FROM)))
        return torch.where(torch.rand(predicted.shape[0], 1, device=self.device) < share, predicted, tracked)

    def _judge(self, made: Tensor, true: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Both sides of the game from one look at the sound: the slope of the generator's part by `made`, and a step of the judges."""
        rows = true.shape[0]
        shown = made.detach().requires_grad_()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            scores, features = self.discriminators(torch.cat([true, shown]))
        convincing = losses.convincing(scores, rows)
        distance = losses.feature_distance(features, rows)
        (slope,) = torch.autograd.grad(convincing + losses.FEATURE_WEIGHT * distance, shown, retain_graph=True)
        judged = losses.judged(scores, rows)
        warm = min(1.0, (self.schedule.step - (self.judging_since or 0) + 1) / 200)
        self.judges.step(torch.autograd.grad(judged, self.judges.parameters), warm * self.schedule.rate(RATE))
        return slope, {"judged": judged, "convincing": convincing, "features": distance}

    def shipped(self) -> dict[str, Tensor]:
        """The average, weight norm fused, rounded to half precision."""
        return store.halved(fused(self.average.values))

    def rounded(self) -> dict[str, Tensor]:
        """`shipped` as float32 on the device."""
        return {name: tensor.to(self.device, torch.float32) for name, tensor in self.shipped().items()}

    @property
    def skipped(self) -> Tensor:
        """Steps that were not taken because a gradient was not finite."""
        return self.sound.skipped + self.pitch.skipped + self.judges.skipped

    def save(self, path: Path) -> None:
        descents = {"sound": self.sound, "pitch": self.pitch, "judges": self.judges}
        content: dict[str, object] = {
            "parameters": {name: tensor.detach() for name, tensor in self.parameters.items()},
            "average": self.average.values,
            "discriminators": self.discriminators.state_dict(),
            "optimisers": {name: descent.optimiser.state_dict() for name, descent in descents.items()},
            "judging_since": self.judging_since,
            "step": self.schedule.step,
            "seconds": self.schedule.seconds,
        }
        store.save(path, content)

    @torch.no_grad()
    def load(self, found: Mapping[str, object]) -> None:
        """Go on from `save`. Raises ValueError when it was of other sizes."""
        values, average, optimisers = found["parameters"], found["average"], found["optimisers"]
        if not isinstance(values, dict) or not isinstance(average, dict) or not isinstance(optimisers, dict):
            raise ValueError("not a checkpoint of this training")
        store.require_names(values, self.parameters)
        for name, tensor in values.items():
            if tensor.shape != self.parameters[name].shape:
                raise ValueError(f"{name} is {list(tensor.shape)} in the checkpoint, expected {list(self.parameters[name].shape)}")
            self.parameters[name].copy_(tensor)
        self.average.load(average)
        self.discriminators.load_state_dict(found["discriminators"])  # type: ignore[arg-type]
        for name, descent in {"sound": self.sound, "pitch": self.pitch, "judges": self.judges}.items():
            descent.optimiser.load_state_dict(optimisers[name])
        since = found["judging_since"]
        self.judging_since = None if since is None else int(str(since))


def _middle(x: Tensor, segments: Segments) -> Tensor:
    """Of [B, frames], the frames whose sound is asked for."""
    return x[:, segments.stretch.before :][:, : segments.stretch.sound]


class Means:
    """Means of terms over the steps since they were last asked for, summed on the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, terms: Mapping[str, Tensor]) -> None:
        for name, term in terms.items():
            self._sums[name] = self._sums[name] + term if name in self._sums else term
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Waits for the device."""
        found = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return found


def train(work: Path, name: str, schedule_minutes: float, device: torch.device, *, steps: int = 10**9, batch: int, frames: int) -> None:
    """Train until the time is over or the steps are done; everything is written at the end, and about every minute."""
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = False
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    config = read_config(model_directory(work))
    speech = Speech.read(work, device)
    f0, first_frames = pitch.of_speech(speech)
    checkpoint = folder / "checkpoint.pt"
    found = store.load(checkpoint, device) if checkpoint.exists() else None
    done = (float(str(found["seconds"])), int(str(found["step"]))) if found else (0.0, 0)
    schedule = Schedule(schedule_minutes, steps, *done)
    draws = Draws(speech, f0, first_frames, frames, np.random.default_rng(SEED + schedule.step))
    training = Training(config, draws, schedule, device)
    if found:
        training.load(found)
    held_out, means = HeldOut(speech, f0, first_frames, config), Means()
    journal = Journal(folder, name, schedule)
    reported = measured = saved = time.monotonic()
    counted = schedule.step

    def report(measure: bool) -> None:
        nonlocal counted, reported
        per_second = (schedule.step - counted) / max(1e-6, time.monotonic() - reported)
        values = means.take() | {"skipped": float(training.skipped), "steps_per_second": per_second}
        journal.report(values | (held_out.measure(training.rounded()) if measure else {}))
        counted, reported = schedule.step, time.monotonic()

    def save() -> None:
        training.save(checkpoint)
        store.save(folder / FILE, training.shipped())

    while not schedule.over:
        means.add(training.step(batch))
        journal.tick()
        now = time.monotonic()
        if now - reported > REPORT_SECONDS:
            due = now - measured > MEASURE_SECONDS
            report(due)
            measured = time.monotonic() if due else measured
        if now - saved > SAVE_SECONDS:
            save()
            saved = time.monotonic()
    save()
    report(measure=True)
    held_out.write(training.rounded(), folder)
    journal.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recipes.demo_voice.vocoder.train", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="work folder with speech/ in it")
    parser.add_argument("--name", default="vocoder", help="folder of the results inside WORK")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=10**9, help="stop earlier, after so many steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=BATCH, help="segments of a step")
    parser.add_argument("--frames", type=int, default=FRAMES, help="mel frames of sound in a segment, 20 ms each")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    train(options.work, options.name, options.minutes, device, steps=options.steps, batch=options.batch, frames=options.frames)
    return 0


if __name__ == "__main__":
    sys.exit(main())
