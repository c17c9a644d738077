"""`python -m recipes.demo_voice.flow.train WORK --tokenizer tokenizer --name flow --minutes 10`:
speech tokens to mel.

Needs speech/, features/, the tokenizer's codes and the speaker vectors. Writes into WORK/<name>:
`checkpoint.pt` (to go on from), `flow.pt` (half precision, as the service reads it), journal.jsonl
and journal.png.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS
from recipes.demo_voice.features import Features
from recipes.demo_voice.flow import parameters
from recipes.demo_voice.flow.corpus import Corpus
from recipes.demo_voice.flow.objective import BRIEF, KINDS, HeldOut
from recipes.demo_voice.flow.parameters import Initial, shapes
from recipes.demo_voice.flow.pieces import GRANULE, Piece, RandomPieces
from recipes.demo_voice.flow.update import Update
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule
from recipes.demo_voice.training.speech import Speech
from services.token2wav.flow.network import Network
from services.token2wav.flow.weights import FlowConfig

BATCH_TOKENS = 5_000
PEAK_RATE = 2e-3
WARM_UP = 400
DECAY = 0.9995
SEED = 30
_AVERAGED_EVERY = 4
_WAITED_EVERY = 32
_REPORT_SECONDS, _SAVE_SECONDS = 40.0, 60.0


class Training:
    """Parameters, their average and the optimiser, all on one device."""

    def __init__(
        self, config: FlowConfig, corpus: Corpus, schedule: Schedule, rate: float = PEAK_RATE, *, graphs: bool = False
    ) -> None:
        torch.manual_seed(SEED + schedule.step)
        self.config, self.corpus, self.schedule, self._rate = config, corpus, schedule, rate
        self._coin = np.random.default_rng(SEED + schedule.step)
        self.parameters = parameter_store.make(
            shapes(config, corpus.count), Initial(config, corpus.mean), corpus.mel.device
        )
        self.average = parameter_store.Average(self.parameters, DECAY**_AVERAGED_EVERY)
        self.update = Update(config, corpus, self.parameters, SEED + schedule.step, graphs=graphs)

    @property
    def served(self) -> Network:
        """The average of the parameters, as a network."""
        return Network(self.config, self.average.values)

    @property
    def rate(self) -> float:
        """Of the next step."""
        return self.schedule.rate(self._rate, warm_up=WARM_UP)

    def step(self, pieces: list[Piece]) -> Tensor:
        """One update; the velocity's error, that of mu and the gradient's norm, [3] on the device,
        until the next step.
        """
        schedule = self.schedule
        # Masks hide nothing within the first chunk.
        streaming = bool(self._coin.random() < 0.5) and pieces[0].length > CHUNK_TOKENS
        # A good mu early is a good condition early; later it only has to stay one.
        mu_weight = 0.3 + 0.7 * max(0.0, 1 - 4 * schedule.progress)
        figures = self.update(pieces, streaming=streaming, rate=self.rate, mu_weight=mu_weight)
        schedule.step += 1
        if schedule.step % _AVERAGED_EVERY == 0:
            self.average.update(schedule.step // _AVERAGED_EVERY)
        if schedule.step % _WAITED_EVERY == 0 and figures.is_cuda:
            # Lest the clock end a training that has hundreds of steps before it.
            torch.cuda.synchronize()
        return figures

    @property
    def finite(self) -> bool:
        """Whether every average is a number; waits for the device."""
        return bool(torch.stack([tensor.sum() for tensor in self.average.values.values()]).isfinite().all())

    def save(self, path: Path) -> None:
        plain = {name: tensor.detach() for name, tensor in self.parameters.items()}
        content: dict[str, object] = {
            "parameters": plain,
            "average": self.average.values,
            "optimiser": self.update.state(),
        }
        parameter_store.save(path, content | {"step": self.schedule.step, "seconds": self.schedule.seconds})

    @torch.no_grad()
    def load(self, content: Mapping[str, object]) -> None:
        """Go on from `save`. Raises ValueError when the tensors are those of other sizes."""
        optimiser = content["optimiser"]
        if not isinstance(optimiser, dict):
            raise ValueError("not a checkpoint of this training")
        parameter_store.restore(self.parameters, self.average, content)
        self.update.load(optimiser)

    def go_back(self, checkpoint: Path) -> None:
        """To the last checkpoint, and on from there at half the rate. Raises FloatingPointError
        when there is none.
        """
        if not checkpoint.exists():
            raise FloatingPointError(
                f"values that are not finite before the first checkpoint, at step {self.schedule.step}"
            )
        self.load(parameter_store.load(checkpoint, self.corpus.mel.device))
        self._rate /= 2


def ready(device: torch.device) -> None:
    """Settings of the process: the device and how exact products are."""
    if device.index is not None:
        torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    # It would prepare itself again for each of the many shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)


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
    measured: int = 32,
    graphs: bool = True,
) -> dict[str, float]:
    """Train until the time is over or the steps are done, then write everything; what was measured
    at the end.

    measured: held-out utterances that are solved at each report.
    """
    ready(device)
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    speech = Speech.read(work, audio=False)
    features = Features.read(work, speech, device, only=("mel",))
    corpus = Corpus.read(work, tokenizer, speech, features)
    checkpoint = folder / "checkpoint.pt"
    content = parameter_store.load(checkpoint, device) if checkpoint.exists() else None
    done = (float(str(content["seconds"])), int(str(content["step"]))) if content else (0.0, 0)
    schedule = Schedule(minutes, steps, *done)
    training = Training(FlowConfig.read(model_directory(work)), corpus, schedule, rate, graphs=graphs)
    if content:
        training.load(content)
        del content
    batches = RandomPieces(speech, features, speech.training, np.random.default_rng(SEED + schedule.step)).batches(
        batch_tokens
    )
    held_out = _held_out(corpus, speech, features, measured)
    journal = Journal(folder, name, schedule)
    reported = saved = time.monotonic()
    sums, counted = torch.zeros(3, device=device), 0

    def report(kinds: Sequence[str]) -> dict[str, float]:
        measures = {"rate": training.rate}
        if counted:
            flow, coarse, norm = (sums / counted).tolist()
            measures |= {
                "loss": flow,
                "mu_l1": coarse,
                "gradient": norm,
                "steps_a_second": counted / (time.monotonic() - reported),
            }
        if held_out:
            measures |= held_out.measure(training.served, training.config, kinds=kinds)
        journal.report(measures)
        sums.zero_()
        return measures

    def write() -> None:
        if not training.finite:
            training.go_back(checkpoint)
        training.save(checkpoint)
        parameters.write(folder, training.average.values, training.config, corpus.first_id)

    while not schedule.over:
        sums += training.step(next(batches))
        counted += 1
        journal.tick()
        if time.monotonic() - reported > _REPORT_SECONDS:
            report(BRIEF)
            counted, reported = 0, time.monotonic()
        if time.monotonic() - saved > _SAVE_SECONDS:
            write()
            saved = time.monotonic()
    write()
    measures = report(KINDS)
    journal.close()
    return measures


def _held_out(corpus: Corpus, speech: Speech, features: Features, count: int) -> HeldOut | None:
    """Evenly spread over the held-out utterances; prompts come from the training's, as they do when
    a voice is served.
    """
    usable = [member for member in speech.held_out if features.tokens[member] >= GRANULE]
    chosen = usable[:: max(1, len(usable) // max(1, count))][:count]
    if not chosen:
        return None
    return HeldOut(
        corpus,
        RandomPieces(speech, features, speech.training, np.random.default_rng(0)),
        chosen,
        np.random.default_rng(0),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.flow.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder")
    parser.add_argument("--tokenizer", default="tokenizer", help="folder of the speech tokenizer in WORK")
    parser.add_argument("--name", default="flow", help="folder in WORK to write")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="25 Hz tokens of a batch")
    parser.add_argument(
        "--graphs", action=argparse.BooleanOptionalAction, default=True, help="record steps and replay them, on CUDA"
    )
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="peak learning rate")
    options = parser.parse_args(arguments)
    train(
        options.work,
        options.minutes,
        torch.device(options.device),
        tokenizer=options.tokenizer,
        name=options.name,
        batch_tokens=options.batch_tokens,
        rate=options.rate,
        graphs=options.graphs,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
