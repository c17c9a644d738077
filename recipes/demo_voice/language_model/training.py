"""One training: parameters, what is done to them in a step, and how it is saved and resumed
again.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.language_model.layouts import NOTHING, Vocabulary
from recipes.demo_voice.language_model.network import build, initialise
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Schedule
from services.llm.generation.config import LlmConfig

AVERAGE_DECAY = 0.998
SPAN = 4
"""Codes that are hidden together in half of the sequences."""


@dataclass(frozen=True)
class Options:
    """How to train; every field is an option of the command.

    positions: of one batch, padding included. rate: highest learning rate. corruption: highest
    share of past codes that a sequence hides. arriving: share of sequences laid out as arriving
    text, late in the schedule. report, checkpoint: seconds between them. heard: held-out sentences
    spoken for a report, all of them at the end. processes: that make batches.
    """

    minutes: float = 7.0
    steps: int = 10**9
    positions: int = 12_000
    rate: float = 1.5e-3
    warm_up: int = 300
    dropout: float = 0.15
    decay: float = 0.1
    smoothing: float = 0.05
    corruption: float = 0.3
    spliced: float = 0.5
    concatenated: float = 0.3
    arriving: float = 0.22
    report: float = 30.0
    checkpoint: float = 60.0
    heard: int = 64
    processes: int = 3
    seed: int = 1


def corrupted(inputs: Tensor, vocabulary: Vocabulary, most: float) -> Tensor:
    """Codes hidden at a rate drawn for each sequence from 0 to `most`, one by one or in spans; half
    by the mask, half by another code.

    inputs: int64 [batch, positions].
    """
    rows, positions = inputs.shape
    device = inputs.device
    rate = torch.rand(rows, 1, device=device) * most
    single = torch.rand(rows, positions, device=device)
    spans = torch.rand(rows, -(-positions // SPAN), device=device).repeat_interleave(SPAN, 1)[:, :positions]
    drawn = torch.where(torch.rand(rows, 1, device=device) < 0.5, single, spans)
    hidden = (drawn < rate) & (inputs >= vocabulary.first_code)
    other = torch.randint(vocabulary.first_code, vocabulary.mask, inputs.shape, device=device)
    instead = torch.where(torch.rand(rows, positions, device=device) < 0.5, other, vocabulary.mask)
    return torch.where(hidden, instead, inputs)


@dataclass
class Training:
    """Parameters, optimiser and average of one training, and where it stands."""

    config: LlmConfig
    vocabulary: Vocabulary
    options: Options
    device: torch.device
    schedule: Schedule = field(init=False)
    best: float = float("inf")
    """Lowest phone error of free-running speech."""

    def __post_init__(self) -> None:
        options = self.options
        self.schedule = Schedule(options.minutes, options.steps)
        self.leaves = initialise(self.config, self.vocabulary, self.device)
        self.average = parameter_store.Average(self.leaves, AVERAGE_DECAY)
        matrices = [leaf for leaf in self.leaves.values() if leaf.ndim > 1]
        others = [leaf for leaf in self.leaves.values() if leaf.ndim == 1]
        groups = [{"params": matrices, "weight_decay": options.decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, options.rate, betas=(0.9, 0.95), fused=self.device.type == "cuda")

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One optimiser step on int64 [batch, positions]; returns loss and accuracy, float32 [2] on
        the device, not waited for.
        """
        options, schedule = self.options, self.schedule
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.rate(options.rate, warm_up=options.warm_up)
        model = build(self.config, self.leaves, options.dropout)
        scores = model.scores(model.hidden(corrupted(inputs, self.vocabulary, options.corruption))).flatten(0, 1)
        wanted = targets.flatten()
        loss = F.cross_entropy(scores, wanted, ignore_index=NOTHING, label_smoothing=options.smoothing)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        torch.nn.utils.clip_grad_norm_(self.leaves.values(), 1.0)
        self.optimiser.step()
        schedule.step += 1
        self.average.update(schedule.step)
        right = (scores.detach().argmax(-1) == wanted).sum() / (wanted != NOTHING).sum()
        return torch.stack([loss.detach(), right])

    def save(self, path: Path) -> None:
        """Everything that `resume` needs."""
        content = {
            "parameters": {name: leaf.detach() for name, leaf in self.leaves.items()},
            "average": self.average.values,
            "optimiser": self.optimiser.state_dict(),
            "step": self.schedule.step,
            "seconds": self.schedule.seconds,
            "best": self.best,
        }
        parameter_store.save(path, content)

    def resume(self, path: Path) -> None:
        """Go on where `save` was called. Raises ValueError when the file is of another network."""
        content = cast(dict[str, Any], parameter_store.load(path, self.device))
        parameter_store.require_names(content["parameters"], self.leaves)
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(content["parameters"][name])
        self.average.load(content["average"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.best = content["best"]
        self.schedule = Schedule(
            self.options.minutes, self.options.steps, spent=content["seconds"], step=content["step"]
        )
