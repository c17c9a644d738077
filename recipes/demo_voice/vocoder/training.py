"""One step of the vocoder's training, and its state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.vocoder import generator, objective
from recipes.demo_voice.vocoder.generator import Generator
from recipes.demo_voice.vocoder.objective import Discriminators
from recipes.demo_voice.vocoder.recording import Descent, Replayed
from recipes.demo_voice.vocoder.segments import RandomPieces, Stretch, disturbed, sent
from services.token2wav.vocoder.weights import VocoderConfig, fused

RATE, PITCH_RATE = 3e-4, 1e-3
ADVERSARIAL_FROM = 0.06
DECAY = 0.999
NOISE, BLUR, BLUR_FROM = 0.03, 0.3, 0.6
PREDICTED_FROM, PREDICTED_FULLY = 0.1, 0.4
"""Progress at which the first rows get their source from the predicted pitch, and at which
PREDICTED_MOST of them do.
"""
PREDICTED_MOST = 0.8
HEARD = 0.5
"""Part of each segment that the judges hear: a stretch at random."""
TERMS = ("mel", "mels", "pitch", "norm", "judged", "convincing", "features")
PLAIN_TERMS = 4
"""The first of them are the ones without discriminators."""
SEED = 40


@dataclass(frozen=True)
class Kind:
    """What decides which work a step is."""

    stretch: Stretch
    judging: bool


class Training(parameter_store.TrainingState):
    """Generator, its average, discriminators and their optimisers, all on one device."""

    def __init__(
        self, config: VocoderConfig, draws: RandomPieces, schedule: Schedule, device: torch.device, *, width: int = 32
    ) -> None:
        """width: of the discriminators."""
        torch.manual_seed(SEED + schedule.step)
        self.config, self.draws, self.device = config, draws, device
        drawn = generator.make(config, device)
        self.discriminators = Discriminators(width).to(device)
        of_pitch = [tensor for name, tensor in drawn.items() if name.startswith(generator.PITCH)]
        of_sound = [tensor for name, tensor in drawn.items() if not name.startswith(generator.PITCH)]
        self.sound = Descent(of_sound, largest_norm=500.0)
        self.pitch = Descent(of_pitch, largest_norm=100.0)
        self.judges = Descent(list(self.discriminators.parameters()), largest_norm=10.0)
        super().__init__(
            drawn,
            schedule,
            decay=DECAY,
            discriminators=self.discriminators,
            sound=self.sound,
            pitch=self.pitch,
            judges=self.judges,
        )
        self.judging_since: int | None = None
        self.adversarial_from = ADVERSARIAL_FROM
        self.heard = HEARD
        self.replayed: Replayed[Kind] | None = None

    def record(self) -> Replayed[Kind]:
        """From now on steps are recorded and replayed; they must be made on the stream of what is
        returned.
        """
        self.replayed = Replayed(self.update, self.device)
        return self.replayed

    def step(self, batch: int) -> dict[str, Tensor]:
        """One update; the terms stay on the device. Raises RecordingFailed."""
        judging = self.schedule.progress >= self.adversarial_from
        if judging and self.judging_since is None:
            self.judging_since = self.schedule.step
        segments = self.draws.next(batch)
        kind = Kind(segments.stretch, judging)
        inputs = [segments.mel, segments.f0, segments.wave, self.knobs()]
        figures = self.replayed(kind, inputs) if self.replayed else self.update(kind, inputs)
        self.schedule.step += 1
        self.average.update(self.schedule.step)
        return dict(zip(TERMS if judging else TERMS[:PLAIN_TERMS], figures.unbind(), strict=True))

    def knobs(self) -> Tensor:
        """What changes from step to step: learning rates of sound, pitch and judges, shares of
        predicted pitch and of blurred mel.
        """
        progress, schedule = self.schedule.progress, self.schedule
        warm = min(
            1.0, (schedule.step - (schedule.step if self.judging_since is None else self.judging_since) + 1) / 200
        )
        share = PREDICTED_MOST * min(1.0, max(0.0, (progress - PREDICTED_FROM) / (PREDICTED_FULLY - PREDICTED_FROM)))
        blur = BLUR if progress > BLUR_FROM else 0.0
        return sent(
            [schedule.rate(RATE), schedule.rate(PITCH_RATE), warm * schedule.rate(RATE), share, blur], self.device
        )

    def update(self, kind: Kind, inputs: Sequence[Tensor]) -> Tensor:
        """Generator and judges by one step: mel, f0 and wave of a batch and `knobs` -> TERMS. Work
        on the device alone.
        """
        clean, f0, wave, knobs = inputs
        rate, pitch_rate, judges_rate, share, blur = knobs.unbind()
        stretch = kind.stretch
        mel = disturbed(clean, NOISE, blur)
        network = Generator(self.config, self.parameters, self.device)
        predicted = network.pitch(mel)
        pitch_loss = (predicted - f0)[:, stretch.before :][:, : stretch.sound].abs().mean()
        follows = torch.rand(predicted.shape[0], 1, device=self.device) < share
        generated = network.sound(mel, torch.where(follows, predicted.detach(), f0), stretch)

        own, others = objective.mel_distance(generated, wave)
        terms = [own, others, pitch_loss, self.sound.norm]
        outputs, slopes = [objective.MEL_WEIGHT * (own + others) / 2], [torch.ones_like(own)]
        if kind.judging:
            slope, figures = self._judge(generated, wave, judges_rate)
            outputs.append(generated)
            slopes.append(slope)
            terms += figures
        self.sound.step(torch.autograd.grad(outputs, self.sound.parameters, slopes), rate)
        self.pitch.step(torch.autograd.grad(pitch_loss, self.pitch.parameters), pitch_rate)
        terms[PLAIN_TERMS - 1] = self.sound.norm
        return torch.stack([term.detach() for term in terms])

    def _judge(self, generated: Tensor, true: Tensor, rate: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Both sides of the game from one look at the sound: the slope of the generator's part by
        `generated`, and a step of the judges.
        """
        rows, samples = true.shape
        heard = math.ceil(self.heard * samples)
        begins = (torch.rand(rows, 1, device=self.device) * (samples - heard + 1)).long().clamp(max=samples - heard)
        places = begins + torch.arange(heard, device=self.device)
        shown = generated.detach().requires_grad_()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            scores, features = self.discriminators(torch.cat([true.gather(1, places), shown.gather(1, places)]))
        convincing = objective.convincing(scores, rows)
        distance = objective.feature_distance(features, rows)
        (slope,) = torch.autograd.grad(convincing + objective.FEATURE_WEIGHT * distance, shown, retain_graph=True)
        judged = objective.judged(scores, rows)
        self.judges.step(torch.autograd.grad(judged, self.judges.parameters), rate)
        return slope, [judged, convincing, distance]

    def shipped(self) -> dict[str, Tensor]:
        """The average, weight norm fused, rounded to half precision."""
        return parameter_store.halved(fused(self.average.values))

    @property
    def skipped(self) -> Tensor:
        """Steps that were not taken because a gradient was not finite."""
        return self.sound.skipped + self.pitch.skipped + self.judges.skipped

    def state(self) -> dict[str, Any]:
        """For `load`: tensors and plain values."""
        return super().state() | {"judging_since": self.judging_since}

    def load(self, content: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises ValueError when it was of other sizes."""
        super().load(content)
        self.judging_since = content["judging_since"]
