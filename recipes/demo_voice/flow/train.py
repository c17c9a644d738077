"""`python -m recipes.demo_voice.flow.train WORK --tokenizer tokenizer --name flow --minutes 10`:
speech tokens to mel.

Needs speech/, features/, the tokenizer's codes and the speaker vectors. Writes into WORK/<name>:
`checkpoint.pt` (to go on from), `flow.pt` (half precision, as the service reads it), journal.jsonl
and journal.png.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from cosyserve.spec import CHUNK_TOKENS
from recipes.demo_voice.features import Features
from recipes.demo_voice.flow import parameters
from recipes.demo_voice.flow.corpus import Corpus, places_of
from recipes.demo_voice.flow.objective import BRIEF, KINDS, HeldOut, RandomDraws, losses
from recipes.demo_voice.flow.pieces import GRANULE, Piece, RandomPieces
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule, run
from recipes.demo_voice.training.recording import RecordingFailed, Replayed
from recipes.demo_voice.training.speech import Speech
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig

BATCH_TOKENS = 5_000
PEAK_RATE = 2e-3
WARM_UP = 400
DECAY = 0.9995
SEED = 30
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
LARGEST_GRADIENT = 1.0
WARM_UPS = 1
"""Steps of a shape before it is recorded: the first readies all it needs."""
_AVERAGED_EVERY = 4
_WAITED_EVERY = 32
_REPORT_SECONDS = 40.0


class Shape(NamedTuple):
    """What decides which work a step is."""

    rows: int
    length: int
    streaming: bool


class Update:
    """One optimiser step as work for the device alone, recorded once per shape of batch and
    replayed. `tensors` are changed where they are; `graphs` is ignored without CUDA. When recording
    fails, each kernel is launched by itself from then on.
    """

    def __init__(
        self, config: UnetConfig, corpus: Corpus, tensors: Mapping[str, Tensor], seed: int, *, graphs: bool
    ) -> None:
        self._config, self._corpus, self.parameters = config, corpus, tensors
        device = corpus.mel.device
        on_gpu = device.type == "cuda"
        self.replayed = Replayed(self.plain, WARM_UPS) if graphs and on_gpu else None
        # Of our own: a recording that fails leaves the default generator unusable.
        self._generator = torch.Generator(device).manual_seed(seed)
        self.rate = torch.zeros((), device=device)
        self.mu_weight = torch.zeros((), device=device)
        self._optimiser = torch.optim.AdamW(
            parameter_store.by_decay(tensors, WEIGHT_DECAY), lr=self.rate, betas=BETAS, fused=True, capturable=on_gpu
        )

    def __call__(self, pieces: list[Piece], *, streaming: bool, rate: float, mu_weight: float) -> Tensor:
        """The velocity's error, that of mu and the gradient's norm before clipping, float32 [3];
        nothing waits for the device.

        pieces: all of one length.
        """
        self.rate.fill_(rate)
        self.mu_weight.fill_(mu_weight)
        shape, device = Shape(len(pieces), pieces[0].length, streaming), self._corpus.mel.device
        chances = RandomDraws.drawn(shape.rows, shape.length, self._generator)
        inputs = (places_of(pieces, device).to(device, non_blocking=True), chances.noise, chances.rolls)
        if self.replayed:
            try:
                return self.replayed(shape, inputs)
            except RecordingFailed as failure:
                self.replayed = None
                tqdm.write(f"steps are not recorded, each kernel is launched by itself: {failure}")
        return self.plain(shape, inputs)

    def state_dict(self) -> dict[str, Any]:
        """Of the optimiser."""
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        if self.replayed:
            self.replayed.forget()
        self._optimiser.load_state_dict(state)
        for group in self._optimiser.param_groups:
            group |= {"lr": self.rate, "capturable": self.rate.device.type == "cuda"}

    def plain(self, shape: Shape, inputs: Sequence[Tensor]) -> Tensor:
        """A step, each kernel launched by itself. inputs: what `places_of` gives, then the tensors
        of `RandomDraws`.
        """
        places, noise, rolls = inputs
        chances, batch = RandomDraws(noise, rolls), self._corpus.at(places, shape.length)
        batch = replace(batch, tokens=chances.corrupted(batch.tokens, self._corpus.count))
        network = UnetNetwork(self._config, self.parameters)
        flow, coarse = losses(network, batch, chances, self._corpus.mean, streaming=shape.streaming)
        self._optimiser.zero_grad(set_to_none=True)
        (flow + self.mu_weight * coarse).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), LARGEST_GRADIENT)
        self._optimiser.step()
        return torch.stack((flow.detach(), coarse.detach(), norm.detach()))


class Training(parameter_store.TrainingState):
    """Parameters, their average and the optimiser, all on one device."""

    def __init__(
        self,
        config: UnetConfig,
        corpus: Corpus,
        schedule: Schedule,
        rate: float = PEAK_RATE,
        *,
        graphs: bool = False,
        start: Path | None = None,
    ) -> None:
        """start: a `flow.pt` to begin with."""
        torch.manual_seed(SEED + schedule.step)
        self.config, self.corpus, self._rate = config, corpus, rate
        self._coin = np.random.default_rng(SEED + schedule.step)
        drawn = parameter_store.make(
            parameters.shapes(config, corpus.count), parameters.Initial(config, corpus.mean), corpus.mel.device
        )
        if start:
            parameters.start_from(parameter_store.load(start), drawn)
        self.update = Update(config, corpus, drawn, SEED + schedule.step, graphs=graphs)
        super().__init__(drawn, schedule, decay=DECAY**_AVERAGED_EVERY, optimiser=self.update)

    @property
    def served(self) -> UnetNetwork:
        """The average of the parameters, as a network."""
        return UnetNetwork(self.config, self.average.values)

    @property
    def rate(self) -> float:
        """Of the next step."""
        return self.schedule.rate(self._rate, warm_up=WARM_UP)

    def step(self, pieces: list[Piece]) -> dict[str, Tensor]:
        """One update; the velocity's error, that of mu and the gradient's norm, on the device,
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
        return dict(zip(("loss", "mu_l1", "gradient"), figures.unbind(), strict=True))

    def keep(self, folder: Path) -> None:
        """The checkpoint to go on from, and `flow.pt` as it would be served now.

        When a value is no longer finite, the training returns to the last checkpoint and goes on at
        half the rate; raises FloatingPointError when there is none.
        """
        checkpoint = folder / parameter_store.CHECKPOINT
        if not torch.stack([tensor.sum() for tensor in self.average.values.values()]).isfinite().all():
            if not checkpoint.exists():
                raise FloatingPointError(
                    f"values that are not finite before the first checkpoint, at step {self.schedule.step}"
                )
            self.load(parameter_store.load(checkpoint, self.corpus.mel.device))
            self._rate /= 2
        parameter_store.save(checkpoint, self.state())
        parameters.write(folder, self.average.values, self.config, self.corpus.first_id)


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
    start: Path | None = None,
) -> dict[str, float]:
    """Train until the time is over or the steps are done, then write everything; what was measured
    at the end.

    measured: held-out utterances that are solved at each report.
    """
    torch.set_float32_matmul_precision("high")
    # It would prepare itself again for each of the many shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)
    folder = work / name
    speech = Speech.read(work, audio=False)
    corpus = Corpus.read(work, tokenizer, speech, Features.read(work, speech, device, only=("mel",)))
    schedule, content = parameter_store.begun(folder, minutes, steps, device)
    training = Training(UnetConfig.read(model_directory(work)), corpus, schedule, rate, graphs=graphs, start=start)
    if content:
        training.load(content)
        del content
    batches = RandomPieces(speech, speech.training, np.random.default_rng(SEED + schedule.step)).batches(batch_tokens)
    held_out = _held_out(corpus, speech, measured)
    journal = Journal(folder, name, schedule)

    def measure(kinds: Sequence[str]) -> dict[str, float]:
        figures = held_out.measure(training.served, training.config, kinds=kinds) if held_out else {}
        return {"rate": training.rate, **figures}

    means = run(
        journal,
        lambda: training.step(next(batches)),
        lambda: measure(BRIEF),
        lambda: training.keep(folder),
        _REPORT_SECONDS,
    )
    training.keep(folder)
    measures = means | measure(KINDS)
    journal.report(measures)
    journal.close()
    return measures


def _held_out(corpus: Corpus, speech: Speech, count: int) -> HeldOut | None:
    """Evenly spread over the held-out utterances; prompts come from the training's, as they do when
    a voice is served.
    """
    usable = [member for member in speech.held_out if speech.tokens[member] >= GRANULE]
    chosen = usable[:: max(1, len(usable) // max(1, count))][:count]
    if not chosen:
        return None
    draws = RandomPieces(speech, speech.training, np.random.default_rng(0))
    return HeldOut(corpus, draws, chosen, np.random.default_rng(0))


def main(arguments: list[str] | None = None) -> None:
    parser = commands.training("flow.train", __doc__, "work folder", minutes=10, name="flow")
    commands.add_tokenizer(parser)
    commands.add_start(parser, "flow.pt")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="25 Hz tokens of a batch")
    parser.add_argument(
        "--graphs", action=argparse.BooleanOptionalAction, default=True, help="record steps and replay them, on CUDA"
    )
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="peak learning rate")
    options = parser.parse_args(arguments)
    train(
        options.work,
        options.minutes,
        commands.device_of(options),
        tokenizer=options.tokenizer,
        name=options.name,
        steps=options.steps,
        batch_tokens=options.batch_tokens,
        rate=options.rate,
        graphs=options.graphs,
        start=options.start,
    )


if __name__ == "__main__":
    main()
