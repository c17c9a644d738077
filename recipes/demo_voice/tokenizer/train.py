"""`python -m recipes.demo_voice.tokenizer.train WORK --minutes 5 --digits 5`: train the speech
tokenizer, then encode and align all speech.

The encoder learns from two readers of its codes: one finds the phones (connectionist temporal
classification), the other the mel, with the voice looked up in a table. Two small terms keep every
level of every digit in use (without it the codes collapse into one while the first reader still
says nothing but blank) and ask that a disguised recording gives the digits of the clean one. What
is kept is the moving average of the weights at its best held-out phone error in the second half.
Encoding, alignment and export follow after the minutes of training.

With `--encoder FILE` the encoder of a bundled tokenizer is kept as it is and only the readers
learn, so that more speech can be encoded and aligned for a new language model while the flow and
all voices stay as they are: they depend on the codes and on nothing else of the tokenizer. With
`--start FILE` the training begins with that encoder, to which more digits may be added; it is left
as it is until the readers have learnt to read it, and learns with them from then on.

With `--keep FOLDER` nothing is trained: the tokenizer that an earlier training left in that folder
encodes and aligns the speech, so that its codes mean what they meant.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.evaluate import evaluate, mel_error, sound_loss
from recipes.demo_voice.tokenizer.examples import Examples, disguised, stretch, stretched
from recipes.demo_voice.tokenizer.export import export, read_encoder
from recipes.demo_voice.tokenizer.label import label
from recipes.demo_voice.tokenizer.network import Network, Sizes, mask_of
from recipes.demo_voice.tokenizer.trained import ONNX, SETTINGS, WEIGHTS, TrainedTokenizer, write
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule, run
from recipes.demo_voice.training.speech import endless

_LOSSES = {"ctc": 1.0, "mel": 0.5, "spread": 0.3, "steady": 0.25}
"""Weights of the terms; `steady` grows to its own over the first fifth of the training."""
_ROUNDING_NOISE = 0.15
_WITHHELD_VOICES = 0.1
_READERS_ALONE = 0.08
"""Share of the schedule for which an encoder that the training began with stays as it is."""
_STRETCH_GRANULE = 4
_HEARD_BY_EXPORT = 32


class Training(parameter_store.TrainingState):
    """Network, optimiser, moving average and clock of one training, as a checkpoint holds them."""

    KEPT = ("best", "best_error")

    def __init__(self, examples: Examples, schedule: Schedule, options: argparse.Namespace) -> None:
        self._examples, self._device, self._peak = examples, examples.device, options.rate
        torch.manual_seed(options.seed)
        sizes = Sizes(options.digits, len(examples.phones.symbols), len(examples.voices), options.width)
        self.network = Network(sizes, options.dropout).to(self._device).train()
        self._encoder_frozen, self._started = options.encoder is not None, options.start is not None
        if self._encoder_frozen or self._started:
            read_encoder(options.encoder or options.start, self.network.encoder, further_digits=self._started)
        self.network.encoder.requires_grad_(not self._encoder_frozen)
        self._judge = Network(sizes).to(self._device).eval().requires_grad_(False)
        self._optimiser = torch.optim.AdamW(
            [each for each in self.network.parameters() if each.requires_grad],
            self._peak,
            betas=(0.9, 0.98),
            weight_decay=0.05,
            fused=self._device.type == "cuda",
        )
        super().__init__(
            dict(self.network.named_parameters()), schedule, decay=options.decay, optimiser=self._optimiser
        )
        self.best: dict[str, Tensor] = dict(self.average.values)
        self.best_error = float("inf")
        self._rng = np.random.default_rng([options.seed, schedule.step])
        self._batches = endless(examples.speech.training, examples.speech.tokens, options.batch, self._rng)

    def step(self) -> dict[str, Tensor]:
        """One update. Returns the terms of `_LOSSES`, which stay on the device."""
        if self._started:
            self.network.encoder.requires_grad_(self.schedule.progress >= _READERS_ALONE)
        losses = self.losses(next(self._batches))
        weights = dict(_LOSSES)
        weights["steady"] *= min(1.0, 5 * self.schedule.progress)
        loss = torch.stack([weight * losses[name] for name, weight in weights.items()]).sum()
        self.descend(self._optimiser, loss, self.schedule.rate(self._peak), 5.0)
        return {f"train_{name}": losses[name].detach() for name in _LOSSES}

    def losses(self, members: list[int]) -> dict[str, Tensor]:
        """The terms of `_LOSSES` for freshly disguised speech."""
        batch = self._examples.batch(members)
        before = batch.mel.shape[1] // 2
        tokens = stretch(before, _STRETCH_GRANULE, self._rng)
        log_mel, mel, lengths = stretched(batch.log_mel, batch.mel, batch.lengths, tokens)
        lengths_here = [length * tokens // before for length in batch.lengths_here]
        mask, frames = mask_of(lengths, tokens), LOG_MEL_PER_TOKEN * lengths
        heard = disguised(log_mel)
        known = (torch.rand(len(members), device=self._device) >= _WITHHELD_VOICES).float()
        # Apart from the next: within one autocast the bfloat16 copies of weights made without
        # gradients would be used again.
        with self._autocast(), torch.no_grad():
            self.network.eval()
            clean = codes.bounded(self.network.encoder(log_mel, frames))
            self.network.train()
            self.network.encoder.train(not self._encoder_frozen)
        with self._autocast():
            values = self.network.encoder(heard, frames)
            digits = codes.bounded(values)
            levels = codes.rounded(digits, _ROUNDING_NOISE)
            said = self.network.phones(levels, mask)
            sounded = self.network.mel(levels, batch.voices, known, mask)
        return {
            "ctc": sound_loss(said, batch, lengths_here),
            "mel": mel_error(sounded, mel, 2 * lengths),
            "spread": spread_loss(values, mask),
            "steady": ((digits - clean).square() * mask).sum() / (mask.sum() * digits.shape[2]),
        }

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda")

    def evaluate(self) -> dict[str, float | int]:
        """Held-out metrics of the moving average, which is kept when it has the lowest phone error
        of the second half so far.
        """
        self._judge.load_state_dict(self.average.values)
        result = evaluate(self._judge, self._examples, self._examples.speech.held_out)
        # Early on the error says little: a network that says nothing has less of it than one that
        # guesses.
        if self.schedule.progress < 0.5 or result["phone_error"] <= self.best_error:
            self.best_error = result["phone_error"]
            self.best = {name: tensor.clone() for name, tensor in self.average.values.items()}
        return result

    def load(self, content: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises ValueError when it is of another network or frozen encoder."""
        if self._encoder_frozen and any(
            not torch.equal(tensor, content["parameters"][f"encoder.{name}"])
            for name, tensor in self.network.encoder.named_parameters()
        ):
            raise ValueError("the checkpoint was made with another encoder; delete its folder to begin again")
        super().load(content)


def spread_loss(values: Tensor, mask: Tensor) -> Tensor:
    """How far each digit's values, before they are bounded, are from mean 0 and below variance 1
    over a batch: zero when they are not.

    values: float32 [batch, time, digits]. mask: float32 [batch, time, 1]. At variance 1 the three
    levels are about equally frequent.
    """
    count = mask.sum()
    mean = (values * mask).sum((0, 1)) / count
    variance = ((values - mean).square() * mask).sum((0, 1)) / count
    return (mean.square() + (1 - variance).clamp(min=0)).mean()


def train(options: argparse.Namespace) -> None:
    """Until the clock says so; then everything that later stages read."""
    device, folder = commands.device_of(options), options.work / options.name
    examples = Examples(options.work, device)
    schedule, content = parameter_store.begun(folder, options.minutes, options.steps, device)
    training = Training(examples, schedule, options)
    if content:
        training.load(content)
    journal = Journal(folder, options.name, schedule)

    def save() -> None:
        parameter_store.save(folder / parameter_store.CHECKPOINT, training.state())
        write(folder, training.best, training.network.sizes, examples.phones, examples.voices)

    run(journal, training.step, training.evaluate, save, options.report_seconds, options.save_seconds)
    journal.report(training.evaluate())
    save()
    tokenizer = TrainedTokenizer.read(folder, device)
    shipped = evaluate(tokenizer.network, examples, examples.speech.held_out)
    journal.report({f"shipped_{name}": value for name, value in shipped.items()})
    journal.report(label(tokenizer, examples, folder))
    journal.report({"onnx_agreement": _as_onnx(folder, examples)})
    journal.close()


def keep(options: argparse.Namespace) -> None:
    """Everything that later stages read, by the tokenizer in the folder `options.keep`. Raises
    ValueError when it reads other sounds than the model's.
    """
    device, folder = commands.device_of(options), options.work / options.name
    folder.mkdir(exist_ok=True)
    for name in (WEIGHTS, SETTINGS):
        shutil.copyfile(options.keep / name, folder / name)
    examples, tokenizer = Examples(options.work, device), TrainedTokenizer.read(folder, device)
    if tokenizer.phones != examples.phones:
        raise ValueError(f"{options.keep}: the tokenizer reads other sounds than those of the model's symbols")
    counts = label(tokenizer, examples, folder)
    figures = counts | {"onnx_agreement": _as_onnx(folder, examples)}
    print(" ".join(f"{name} {value}" for name, value in figures.items()))


def _as_onnx(folder: Path, examples: Examples) -> float:
    speech = [examples.log_mel(member).cpu() for member in examples.speech.held_out[:_HEARD_BY_EXPORT]]
    return export(TrainedTokenizer.read(folder), speech, folder / ONNX)


def parser() -> argparse.ArgumentParser:
    parser_ = commands.training(
        "tokenizer.train",
        __doc__,
        "work folder with model/phonemes/, speech/ and features/ in it",
        minutes=5,
        name="tokenizer",
    )
    parser_.add_argument("--digits", type=int, default=5, help="ternary digits of a code: 3^digits codes")
    source = parser_.add_mutually_exclusive_group()
    source.add_argument(
        "--encoder", type=Path, metavar="FILE", help="keep the encoder of this speech_tokenizer_v2.onnx"
    )
    source.add_argument(
        "--start", type=Path, metavar="FILE", help="begin with the encoder of this speech_tokenizer_v2.onnx"
    )
    source.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="train nothing: keep the tokenizer that a training left there"
    )
    parser_.add_argument("--batch", type=int, default=12_000, help="tokens a batch, padding included")
    parser_.add_argument("--rate", type=float, default=1.5e-3, help="largest learning rate")
    parser_.add_argument("--dropout", type=float, default=0.1)
    parser_.add_argument("--decay", type=float, default=0.998, help="of the moving average of the weights")
    parser_.add_argument("--width", type=int, default=256, help="channels")
    parser_.add_argument("--seed", type=int, default=1)
    parser_.add_argument("--report-seconds", type=float, default=20.0)
    parser_.add_argument("--save-seconds", type=float, default=60.0)
    return parser_


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    (keep if options.keep else train)(options)


if __name__ == "__main__":
    main()
