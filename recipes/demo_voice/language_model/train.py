"""`python -m recipes.demo_voice.language_model.train WORK --tokenizer tokenizer --name llm
--minutes 7`: the speech-token language model.

Reads the text, `WORK/<tokenizer>` (codes and alignment) and the sizes of `WORK/model`; writes
`WORK/<name>`:

* `llm.pt`: averaged weights in half precision, as the service loads them; with each checkpoint and
  at the end;
* `llm_best.pt`: the same at the lowest phone error of free-running speech seen so far;
* `checkpoint.pt`: to go on from after an interruption; `journal.jsonl`, `journal.png`,
  `results.json`: how it went.

What makes a model of this size read instead of remembering: codes of the past are corrupted in
every sequence, sentences are joined from pieces in new orders (`examples`), and dropout.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.language_model.evaluate import HeldOut, Metrics
from recipes.demo_voice.language_model.layouts import NOTHING, Layouts, Vocabulary
from recipes.demo_voice.language_model.material import Examples, Material, Mixture
from recipes.demo_voice.language_model.network import build, initialise, published, start_from
from recipes.demo_voice.language_model.supply import Batch, EndlessBatches
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import SETTINGS, TrainedTokenizer
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule, run
from services.llm.generation.config import WEIGHTS, LlmConfig, read_config

BEST = "llm_best.pt"
AVERAGE_DECAY = 0.998
SPAN = 4
"""Codes that are hidden together in half of the sequences."""
FREE_RUNS = (0.4, 0.7, 0.9)
"""Shares of the schedule at which speech is generated and listened to; at the end again."""


@dataclass(frozen=True)
class Options:
    """How to train; every field is an option of the command.

    positions: of one batch, padding included. rate: highest learning rate. corruption: highest
    share of past codes that a sequence hides. arriving: share of sequences laid out as arriving
    text, once the share `arriving_from` of the schedule is over: a model that begins with finished
    weights forgets such text unless it hears it from the beginning, 0. report, checkpoint: seconds
    between them. heard: held-out sentences spoken for a report, all of them at the end. processes:
    that make batches.
    """

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
    arriving_from: float = 0.6
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


class Training(parameter_store.TrainingState):
    """Parameters, optimiser and average of one training, and where it stands."""

    KEPT = ("best",)

    def __init__(
        self,
        config: LlmConfig,
        vocabulary: Vocabulary,
        options: Options,
        schedule: Schedule,
        device: torch.device,
        start: Path | None = None,
    ) -> None:
        """start: an `llm.pt` to begin with."""
        self.config, self.vocabulary, self.options, self.device = config, vocabulary, options, device
        self.best = float("inf")
        """Lowest phone error of free-running speech."""
        leaves = initialise(config, vocabulary, device)
        if start:
            start_from(parameter_store.load(start), leaves, vocabulary)
        self.optimiser = torch.optim.AdamW(
            parameter_store.by_decay(leaves, options.decay),
            options.rate,
            betas=(0.9, 0.95),
            fused=device.type == "cuda",
        )
        super().__init__(leaves, schedule, decay=AVERAGE_DECAY, optimiser=self.optimiser)

    def step(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """One optimiser step on int64 [batch, positions]; returns loss and accuracy, on the device,
        not waited for.
        """
        options = self.options
        model = build(self.config, self.parameters, options.dropout)
        scores = model.scores(model.hidden(corrupted(inputs, self.vocabulary, options.corruption))).flatten(0, 1)
        wanted = targets.flatten()
        loss = F.cross_entropy(scores, wanted, ignore_index=NOTHING, label_smoothing=options.smoothing)
        self.descend(self.optimiser, loss, self.schedule.rate(options.rate, warm_up=options.warm_up), 1.0)
        right = (scores.detach().argmax(-1) == wanted).sum() / (wanted != NOTHING).sum()
        return {"train_loss": loss.detach(), "train_accuracy": right}


@dataclass
class Results:
    """What a training leaves in its folder. first_id: speech id of code 0."""

    training: Training
    held_out: HeldOut
    folder: Path
    first_id: int

    def keep(self) -> None:
        """The checkpoint to go on from, and the averaged weights as they would be shipped now."""
        parameter_store.save(self.folder / parameter_store.CHECKPOINT, self.training.state())
        self._export(WEIGHTS)

    def measure(self, most_heard: int) -> Metrics:
        """Held-out metrics of the averaged weights, which are kept next to the last when their
        speech is the best so far.

        most_heard: held-out sentences whose speech is generated and read.
        """
        training = self.training
        model = build(training.config, training.average.values)
        metrics = self.held_out.probabilities(model)
        if most_heard:
            spoken = self.held_out.speech(model, most=most_heard)
            error = spoken["phone_error"] + spoken["prompted_phone_error"]
            if error < training.best:
                training.best = error
                self._export(BEST)
            metrics |= spoken
        return metrics

    def _export(self, name: str) -> None:
        tensors = published(self.training.average.values, self.training.vocabulary, self.first_id)
        parameter_store.save(self.folder / name, parameter_store.halved(tensors))


def train(given: argparse.Namespace, options: Options) -> Metrics:
    """Train and leave `WORK/<name>`; returns the last measurements. Goes on from a checkpoint that
    is there.
    """
    work, device = given.work, commands.device_of(given)
    folder = work / given.name
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    # it plans again for every shape of a batch, and there are hundreds
    torch.backends.cuda.enable_cudnn_sdp(False)
    config = read_config(model_directory(work))
    settings = json.loads((work / given.tokenizer / SETTINGS).read_text(encoding="utf-8"))
    vocabulary = Vocabulary(config.text_vocabulary, settings["codes"])
    layouts = Layouts(vocabulary, config.text_block, config.speech_block)
    material = Material.read(work, given.tokenizer)
    supply = EndlessBatches(
        Examples(material, Mixture(options.spliced, options.concatenated)), layouts, options.positions, options.seed
    )
    if options.arriving_from <= 0:
        # Before the first batches are made, which is before the first step.
        supply.arriving_share.fill_(options.arriving)
    batches = supply.start(options.processes, pinned=device.type == "cuda")
    first = next(batches)  # what makes batches is there before the device is used
    schedule, content = parameter_store.begun(folder, given.minutes, given.steps, device)
    training = Training(config, vocabulary, options, schedule, device, given.start)
    if content:
        training.load(content)
    held_out = HeldOut.prepare(material, layouts, TrainedTokenizer.read(work / given.tokenizer, device), device)
    results = Results(training, held_out, folder, settings["first_id"])
    journal = Journal(folder, given.name, schedule)
    _run(results, supply, chain([first], batches), journal)
    results.keep()
    last = results.measure(len(material.held_out))
    journal.report(last)
    journal.close()
    (folder / "results.json").write_text(json.dumps(last, indent=1) + "\n", encoding="utf-8")
    return last


def _run(results: Results, supply: EndlessBatches, batches: Iterator[Batch], journal: Journal) -> None:
    """Step after step until the schedule is over."""
    training, schedule, options = results.training, journal.schedule, results.training.options
    listen_at = [share for share in FREE_RUNS if share > schedule.progress]

    def step() -> dict[str, Tensor]:
        if schedule.progress >= options.arriving_from:
            supply.arriving_share.fill_(options.arriving)
        return training.step(*next(batches).on(training.device))

    def measure() -> Metrics:
        nonlocal listen_at
        listens = bool(listen_at) and schedule.progress >= listen_at[0]
        listen_at = [share for share in listen_at if share > schedule.progress]
        return results.measure(options.heard if listens else 0)

    run(journal, step, measure, results.keep, options.report, options.checkpoint)


def parser() -> argparse.ArgumentParser:
    """Every field of `Options` is an option."""
    parser_ = commands.training(
        "language_model.train",
        __doc__,
        "work folder with text/, speech/ and the tokenizer's results in it",
        minutes=7,
        name="llm",
    )
    commands.add_tokenizer(parser_)
    commands.add_start(parser_, "llm.pt")
    for option in fields(Options):
        parser_.add_argument(f"--{option.name.replace('_', '-')}", type=type(option.default), default=option.default)
    return parser_


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    train(given, Options(**{option.name: getattr(given, option.name) for option in fields(Options)}))


if __name__ == "__main__":
    main()
