"""`python -m recipes.demo_voice.flow.graph_check WORK`: whether recorded steps do what the steps
they record do, and how fast.

For each shape of batch: milliseconds of a step with each kernel launched by itself and of its CUDA
graph, and how far apart the parameters are after one step of each from the same state with the same
chances, as a share of what the step changes. Writes nothing.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from recipes.demo_voice.features import Features
from recipes.demo_voice.flow.corpus import Corpus
from recipes.demo_voice.flow.pieces import Piece, RandomPieces
from recipes.demo_voice.flow.train import BATCH_TOKENS, Training, ready
from recipes.demo_voice.flow.update import Slot, Update
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.speech import Speech
from services.token2wav.flow.weights import FlowConfig

_WARM, _TIMED = 20, 20
_CLOSE = 0.05
"""Half-precision sums come in another order each time, and small gradients are as good as their
sign to the optimiser.
"""


def compare(training: Training, slot: Slot) -> tuple[float, float]:
    """Distance between the two steps' results, as a share of the change; the same of their figures.
    Parameters end where they began.
    """
    update = training.update
    tensors = [*training.parameters.values(), *update.moments()]
    before = [tensor.detach().clone() for tensor in tensors]

    def after(figures: Tensor) -> tuple[Tensor, Tensor]:
        values = torch.cat([tensor.detach().flatten() for tensor in training.parameters.values()])
        copies = values.clone(), figures.clone()
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
        return copies

    start = torch.cat([old.flatten() for old in before[: len(training.parameters)]])
    (plain, its_figures), (recorded, other_figures) = after(update.run_plain(slot)), after(update.run(slot))
    distance = (plain - recorded).norm() / (plain - start).norm()
    return float(distance), float(((its_figures - other_figures) / its_figures).abs().max())


def milliseconds(update: Update, slot: Slot, *, plain: bool) -> float:
    """Of one step, by the clock."""
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(_TIMED):
        _ = update.run_plain(slot) if plain else update.run(slot)
    torch.cuda.synchronize()
    return 1000 * (time.monotonic() - began) / _TIMED


def check(training: Training, shapes: dict[int, list[Piece]]) -> bool:
    """One line per shape; whether all recordings were made and agree."""
    update, good = training.update, True
    for length, pieces in tqdm(sorted(shapes.items()), desc="shapes", unit="shape"):
        for streaming in (False, True):
            update(pieces, streaming=streaming, rate=training.rate, mu_weight=1.0)
            began = time.monotonic()
            update(pieces, streaming=streaming, rate=training.rate, mu_weight=1.0)
            if not update.graphs:
                return False
            torch.cuda.synchronize()
            recording = time.monotonic() - began
            slot = update.slot(pieces, streaming=streaming)
            distance, figures = compare(training, slot)
            plain, recorded = milliseconds(update, slot, plain=True), milliseconds(update, slot, plain=False)
            good = good and distance < _CLOSE and figures < _CLOSE
            tqdm.write(
                f"{len(pieces)} x {length} tokens{' streaming' if streaming else ''}: plain {plain:.1f} ms, recorded "
                f"{recorded:.1f} ms, "
                f"recording {recording:.2f} s; difference {distance:.2g} of the change, {figures:.2g} of the figures; "
                f"memory {torch.cuda.memory_reserved() / 2**30:.1f} GiB"
            )
    return good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.flow.graph_check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder")
    parser.add_argument("--tokenizer", default="tokenizer", help="folder of the speech tokenizer in WORK")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="25 Hz tokens of a batch")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    ready(device)
    speech = Speech.read(options.work, audio=False)
    features = Features.read(options.work, speech, device, only=("mel",))
    corpus = Corpus.read(options.work, options.tokenizer, speech, features)
    training = Training(FlowConfig.read(model_directory(options.work)), corpus, Schedule(1, step=1000), graphs=True)
    batches = RandomPieces(speech, features, speech.training, np.random.default_rng(0)).batches(options.batch_tokens)
    shapes: dict[int, list[Piece]] = {}
    for _ in range(_WARM):
        pieces = next(batches)
        shapes[pieces[0].length] = pieces
        training.step(pieces)
    good = check(training, shapes)
    print("recorded steps agree" if good else "recorded steps are missing or differ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
