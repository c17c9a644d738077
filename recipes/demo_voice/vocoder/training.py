"""One step of the vocoder's training, its optimisers and its state."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.recording import Replayed
from recipes.demo_voice.vocoder import generator, objective
from recipes.demo_voice.vocoder.generator import Generator
from recipes.demo_voice.vocoder.objective import Discriminators
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
WARM_UPS = 3
"""Steps of each kind before it is recorded."""


class Descent:
    """AdamW that bounds gradients, for one group of parameters. A step whose gradient is not finite
    changes nothing and is counted in `skipped`.

    Nothing waits for the device and every number that changes is a tensor on it, so a step can be
    recorded in a CUDA graph.
    """

    def __init__(self, parameters: Sequence[Tensor], *, largest_norm: float) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self._rate = torch.zeros((), device=device)
        self._recordable = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=self._rate, betas=(0.8, 0.99), weight_decay=0.0, fused=True, capturable=self._recordable
        )
        # torch warns once when such an optimiser steps outside of a graph; its first steps do.
        self.optimiser._warned_capturable_if_run_uncaptured = True
        self._largest = largest_norm
        self.norm = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    def step(self, gradients: Sequence[Tensor], rate: Tensor) -> None:
        """gradients: of the parameters, in their order. rate: learning rate, [] on the device."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = (
                gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
            )
        self.norm = torch.nn.utils.get_total_norm(gradients)
        broken = (~torch.isfinite(self.norm)).float()
        # The fused kernel divides by the one and does nothing at all when the other is 1: as
        # torch.amp.GradScaler hands them over.
        self.optimiser.grad_scale = (self.norm / self._largest).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.found_inf = broken  # type: ignore[attr-defined]
        self._rate.copy_(rate)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.skipped += broken

    def state_dict(self) -> dict[str, Any]:
        """For `load_state_dict`."""
        return self.optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.optimiser.load_state_dict(state)
        self.optimiser.param_groups[0] |= {"lr": self._rate, "capturable": self._recordable}


@dataclass(frozen=True)
class Kind:
    """What decides which work a step is."""

    stretch: Stretch
    judging: bool


class Training(parameter_store.TrainingState):
    """Generator, its average, discriminators and their optimisers, all on one device."""

    KEPT = ("judging_since",)

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

    def record(self, stream: torch.cuda.Stream) -> None:
        """From now on steps are recorded and replayed; they must be made on `stream`."""
        self.replayed = Replayed(self.update, WARM_UPS, stream)

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
