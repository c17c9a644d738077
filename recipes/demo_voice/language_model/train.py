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
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import cast

import torch

from recipes.demo_voice.language_model.evaluate import HeldOut, Metrics
from recipes.demo_voice.language_model.layouts import Layouts, Vocabulary
from recipes.demo_voice.language_model.material import Examples, Material, Mixture
from recipes.demo_voice.language_model.network import build, published
from recipes.demo_voice.language_model.supply import Batch, EndlessBatches
from recipes.demo_voice.language_model.train import Options, Training
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import SETTINGS, TrainedTokenizer
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Journal
from services.llm.engine.weights import WEIGHTS
from services.llm.generation.config import read_config

BEST, CHECKPOINT = "llm_best.pt", "checkpoint.pt"
ARRIVING_FROM = 0.6
"""Share of the schedule after which some sequences are laid out as arriving text."""
FREE_RUNS = (0.4, 0.7, 0.9)
"""Shares of the schedule at which speech is generated and listened to; at the end again."""


@dataclass
class Results:
    """What a training leaves in its folder. first_id: speech id of code 0."""

    training: Training
    held_out: HeldOut
    folder: Path
    first_id: int

    def keep(self) -> None:
        """The checkpoint to go on from, and the averaged weights as they would be shipped now."""
        self.training.save(self.folder / CHECKPOINT)
        self._export(WEIGHTS)

    def measure(self, most_heard: int) -> Metrics:
        """Held-out metrics of the averaged weights, which are kept next to the last when their
        speech is the best so far.
        """
        training = self.training
        model = build(training.config, training.average.values)
        metrics = self.held_out.probabilities(model)
        if most_heard:
            metrics |= self.held_out.speech(model, most=most_heard)
            error = cast(float, metrics["phone_error"]) + cast(float, metrics["prompted_phone_error"])
            if error < training.best:
                training.best = error
                self._export(BEST)
        return metrics

    def _export(self, name: str) -> None:
        tensors = published(self.training.average.values, self.training.vocabulary, self.first_id)
        parameter_store.save(self.folder / name, parameter_store.halved(tensors))


def train(work: Path, tokenizer: str, name: str, device: torch.device, options: Options) -> Metrics:
    """Train and leave `WORK/<name>`; returns the last measurements. Goes on from a checkpoint that
    is there.
    """
    folder = work / name
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    # it plans again for every shape of a batch, and there are hundreds
    torch.backends.cuda.enable_cudnn_sdp(False)
    config = read_config(model_directory(work))
    settings = json.loads((work / tokenizer / SETTINGS).read_text(encoding="utf-8"))
    vocabulary = Vocabulary(config.text_vocabulary, settings["codes"])
    layouts = Layouts(vocabulary, config.text_block, config.speech_block)
    material = Material.read(work, tokenizer)
    supply = EndlessBatches(
        Examples(material, Mixture(options.spliced, options.concatenated)), layouts, options.positions, options.seed
    )
    batches = supply.start(options.processes, pinned=device.type == "cuda")
    first = next(batches)  # what makes batches is there before the device is used
    training = Training(config, vocabulary, options, device)
    if (folder / CHECKPOINT).exists():
        training.resume(folder / CHECKPOINT)
    held_out = HeldOut.prepare(material, layouts, TrainedTokenizer.read(work / tokenizer, device), device)
    results = Results(training, held_out, folder, settings["first_id"])
    journal = Journal(folder, name, training.schedule)
    _run(results, supply, chain([first], batches), journal)
    results.keep()
    last = results.measure(len(material.held_out))
    journal.report(last)
    journal.close()
    (folder / "results.json").write_text(json.dumps(last, indent=1) + "\n", encoding="utf-8")
    return last


def _run(results: Results, supply: EndlessBatches, batches: Iterator[Batch], journal: Journal) -> None:
    """Step after step until the schedule is over; nothing but a report waits for the device."""
    training = results.training
    schedule, options = training.schedule, training.options
    listen_at = [share for share in FREE_RUNS if share > schedule.progress]
    reported = saved = time.monotonic()
    sums, steps = torch.zeros(2, device=training.device), 0
    while not schedule.over:
        if schedule.progress >= ARRIVING_FROM:
            supply.arriving_share.fill_(options.arriving)
        sums += training.step(*next(batches).on(training.device))
        steps += 1
        journal.tick()
        now = time.monotonic()
        if now - reported > options.report:
            loss, accuracy = (sums / steps).tolist()
            speed = steps / (time.monotonic() - reported)
            listens = bool(listen_at) and schedule.progress >= listen_at[0]
            listen_at = [share for share in listen_at if share > schedule.progress]
            measured = results.measure(options.heard if listens else 0)
            journal.report({"train_loss": loss, "train_accuracy": accuracy, "steps_a_second": speed, **measured})
            sums, steps, reported = torch.zeros_like(sums), 0, time.monotonic()
        if now - saved > options.checkpoint:
            results.keep()
            saved = time.monotonic()


def parser() -> argparse.ArgumentParser:
    """Every field of `Options` is an option."""
    parser_ = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.language_model.train", description=(__doc__ or "").splitlines()[0]
    )
    parser_.add_argument("work", type=Path, help="work folder with text/, speech/ and the tokenizer's results in it")
    parser_.add_argument(
        "--tokenizer", default="tokenizer", help="folder of the tokenizer's results within the work folder"
    )
    parser_.add_argument("--name", default="llm", help="folder of the results within the work folder")
    parser_.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for option in fields(Options):
        parser_.add_argument(f"--{option.name.replace('_', '-')}", type=type(option.default), default=option.default)
    return parser_


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    options = Options(**{option.name: getattr(given, option.name) for option in fields(Options)})
    train(given.work, given.tokenizer, given.name, torch.device(given.device), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
