"""One step of the vocoder's training, and its state."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from recipes.demo_voice import parameters as store
from recipes.demo_voice.progress import Schedule
from recipes.demo_voice.vocoder import generator, losses
from recipes.demo_voice.vocoder.descent import Descent
from recipes.demo_voice.vocoder.discriminators import Discriminators
from recipes.demo_voice.vocoder.generator import Generator
from recipes.demo_voice.vocoder.segments import Draws, Segments, disturbed
from services.token2wav.vocoder.config import VocoderConfig
from services.token2wav.vocoder.weights import fused

RATE, PITCH_RATE = 4e-4, 1e-3
ADVERSARIAL_FROM = 0.06
DECAY = 0.999
NOISE, BLUR, BLUR_FROM = 0.03, 0.3, 0.6
PREDICTED_FROM, PREDICTED_FULLY = 0.1, 0.4
"""Progress at which the first rows get their source from the predicted pitch, and at which PREDICTED_MOST of them do."""
PREDICTED_MOST = 0.8
SEED = 40


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
