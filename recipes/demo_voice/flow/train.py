"""`python -m recipes.demo_voice.flow.train WORK --tokenizer tokenizer --name flow --minutes 10`: speech tokens to mel.

Needs speech/, features/, the tokenizer's codes and the speaker vectors. Writes into WORK/<name>: `checkpoint.pt` (to go on from),
`flow.pt` (half precision, as the service reads it), journal.jsonl and journal.png.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice import parameters as store
from recipes.demo_voice.features import Features
from recipes.demo_voice.flow import shipped
from recipes.demo_voice.flow.corpus import Corpus
from recipes.demo_voice.flow.held_out import HeldOut
from recipes.demo_voice.flow.initial import Initial, shapes
from recipes.demo_voice.flow.objective import corrupted, losses
from recipes.demo_voice.flow.pieces import GRANULE, Draws, Piece
from recipes.demo_voice.layout import model_directory
from recipes.demo_voice.progress import Journal, Schedule
from recipes.demo_voice.speech import Speech
from services.token2wav.flow.network import Network
from services.token2wav.flow.weights import FlowConfig

BATCH_TOKENS = 18_000
PEAK_RATE = 1e-3
WEIGHT_DECAY = 0.01
DECAY = 0.999
SEED = 30
_REPORT_SECONDS, _SAVE_SECONDS = 25.0, 60.0


class Training:
    """Parameters, their average and the optimiser, all on one device."""

    def __init__(self, config: FlowConfig, corpus: Corpus, schedule: Schedule, rate: float = PEAK_RATE) -> None:
        torch.manual_seed(SEED + schedule.step)
        self.config, self.corpus, self.schedule, self._rate = config, corpus, schedule, rate
        self._coin = np.random.default_rng(SEED + schedule.step)
        device = corpus.mel.device
        mean = corpus.mel[:: max(1, len(corpus.mel) // 100_000)].float().mean(0)
        self.parameters = store.make(shapes(config, corpus.count), Initial(config, mean), device)
        self.average = store.Average(self.parameters, DECAY)
        matrices = [tensor for tensor in self.parameters.values() if tensor.dim() > 1]
        others = [tensor for tensor in self.parameters.values() if tensor.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=device.type == "cuda")

    @property
    def served(self) -> Network:
        """The average of the parameters, as a network."""
        return Network(self.config, self.average.values)

    def step(self, pieces: list[Piece]) -> Tensor:
        """One update; the velocity's error, that of mu and the gradient's norm, [3] on the device."""
        schedule = self.schedule
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.rate(self._rate)
        batch = self.corpus.gather(pieces)
        batch = replace(batch, tokens=corrupted(batch.tokens, self.corpus.count))
        flow, coarse = losses(Network(self.config, self.parameters), batch, streaming=bool(self._coin.random() < 0.5))
        # A good mu early is a good condition early; later it only has to stay one.
        weight = 0.3 + 0.7 * max(0.0, 1 - 4 * schedule.progress)
        self.optimiser.zero_grad(set_to_none=True)
        (flow + weight * coarse).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimiser.step()
        schedule.step += 1
        self.average.update(schedule.step)
        return torch.stack((flow.detach(), coarse.detach(), norm.detach()))

    @property
    def finite(self) -> bool:
        """Whether every average is a number; waits for the device."""
        return bool(torch.stack([tensor.sum() for tensor in self.average.values.values()]).isfinite().all())

    def save(self, path: Path) -> None:
        plain = {name: tensor.detach() for name, tensor in self.parameters.items()}
        content: dict[str, object] = {"parameters": plain, "average": self.average.values, "optimiser": self.optimiser.state_dict()}
        store.save(path, content | {"step": self.schedule.step, "seconds": self.schedule.seconds})

    @torch.no_grad()
    def load(self, found: Mapping[str, object]) -> None:
        """Go on from `save`. Raises ValueError when the tensors are those of other sizes."""
        values, average, optimiser = found["parameters"], found["average"], found["optimiser"]
        if not isinstance(values, dict) or not isinstance(average, dict) or not isinstance(optimiser, dict):
            raise ValueError("not a checkpoint of this training")
        store.require_names(values, self.parameters)
        for name, tensor in values.items():
            if tensor.shape != self.parameters[name].shape:
                raise ValueError(f"{name} is {list(tensor.shape)} in the checkpoint, expected {list(self.parameters[name].shape)}")
            self.parameters[name].copy_(tensor)
        self.average.load(average)
        self.optimiser.load_state_dict(optimiser)

    def go_back(self, checkpoint: Path) -> None:
        """To the last checkpoint, and on from there at half the rate. Raises FloatingPointError when there is none."""
        if not checkpoint.exists():
            raise FloatingPointError(f"values that are not finite before the first checkpoint, at step {self.schedule.step}")
        self.load(store.load(checkpoint, self.corpus.mel.device))
        self._rate /= 2


def train(
    work: Path,
    minutes: float,
    device: torch.device,
    *,
    tokenizer: str = "tokenizer",
    name: str = "flow",
    steps: int = 10**9,
    batch_tokens: int = BATCH_TOKENS,
    rate: float = PEAK_RATE,
    measured: int = 40,
) -> dict[str, float]:
    """Train until the time is over or the steps are done, then write everything; what was measured at the end.

    measured: held-out utterances that are solved at each report.
    """
    torch.set_float32_matmul_precision("high")
    # It would prepare itself anew for each of the many shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    speech = Speech.read(work, audio=False)
    features = Features.read(work, speech, device, only=("mel",))
    corpus = Corpus.read(work, tokenizer, speech, features)
    checkpoint = folder / "checkpoint.pt"
    found = store.load(checkpoint, device) if checkpoint.exists() else None
    done = (float(str(found["seconds"])), int(str(found["step"]))) if found else (0.0, 0)
    schedule = Schedule(minutes, steps, *done)
    training = Training(FlowConfig.read(model_directory(work)), corpus, schedule, rate)
    if found:
        training.load(found)
        del found
    batches = Draws(speech, features, speech.training, np.random.default_rng(SEED + schedule.step)).batches(batch_tokens)
    held_out = _held_out(corpus, speech, features, measured)
    journal = Journal(folder, name, schedule)
    reported = saved = time.monotonic()
    sums, counted = torch.zeros(3, device=device), 0

    def report() -> dict[str, float]:
        flow, coarse, norm = (sums / max(1, counted)).tolist()
        measures = {"loss": flow, "mu_l1": coarse, "gradient": norm}
        measures |= {"rate": training.optimiser.param_groups[0]["lr"]}
        if held_out:
            measures |= held_out.measure(training.served, training.config.guidance)
        journal.report(measures)
        sums.zero_()
        return measures

    def write() -> None:
        if not training.finite:
            training.go_back(checkpoint)
        training.save(checkpoint)
        shipped.write(folder, training.average.values, training.config, corpus.first_id)

    while not schedule.over:
        sums += training.step(next(batches))
        counted += 1
        journal.tick()
        if time.monotonic() - reported > _REPORT_SECONDS:
            report()
            counted, reported = 0, time.monotonic()
        if time.monotonic() - saved > _SAVE_SECONDS:
            write()
            saved = time.monotonic()
    write()
    measures = report()
    journal.close()
    return measures


def _held_out(corpus: Corpus, speech: Speech, features: Features, count: int) -> HeldOut | None:
    """Evenly spread over the held-out utterances; prompts come from the training's, as they do when a voice is served."""
    usable = [member for member in speech.held_out if features.tokens[member] >= GRANULE]
    chosen = usable[:: max(1, len(usable) // max(1, count))][:count]
    if not chosen:
        return None
    return HeldOut(corpus, Draws(speech, features, speech.training, np.random.default_rng(0)), chosen, np.random.default_rng(0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recipes.demo_voice.flow.train", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="work folder")
    parser.add_argument("--tokenizer", default="tokenizer", help="folder of the speech tokenizer in WORK")
    parser.add_argument("--name", default="flow", help="folder in WORK to write")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="25 Hz tokens of a batch")
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="peak learning rate")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.index is not None:
        torch.cuda.set_device(device)
    train(
        options.work,
        options.minutes,
        device,
        tokenizer=options.tokenizer,
        name=options.name,
        batch_tokens=options.batch_tokens,
        rate=options.rate,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
