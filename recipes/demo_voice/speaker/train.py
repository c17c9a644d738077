"""`python -m recipes.demo_voice.speaker.train WORK`: the speaker encoder, and the speaker vector of
every utterance.

Needs speech/ and features/. Writes into WORK/speaker: `checkpoint.pt` (to go on from), `speaker.pt`
(half precision), `campplus.onnx` (the same network as the frontend reads it), `embeddings.npy`
(float32 [utterances, 192], whole utterances), journal.jsonl and journal.png.

With `--encoder FILE` nothing is trained: the encoder of a bundled `campplus.onnx` makes the
vectors.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.features import Features
from recipes.demo_voice.speaker import crops, network, objective
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule, run
from recipes.demo_voice.training.speech import Speech

FOLDER = "speaker"
WEIGHTS = f"{FOLDER}/speaker.pt"
EMBEDDINGS = f"{FOLDER}/embeddings.npy"
ONNX = f"{FOLDER}/campplus.onnx"
BATCH = 256
PEAK_RATE = 2e-3
DECAY = 0.999
SEED = 20
REPORT_SECONDS = 20.0
_FRAMES_AT_ONCE = 60_000


class Training(parameter_store.TrainingState):
    """Parameters, their average and the optimiser, all on one device."""

    def __init__(self, speech: Speech, features: Features, schedule: Schedule) -> None:
        self.device = features.fbank.device
        voices = [utterance.voice for utterance in speech.utterances]
        self.voices = objective.Voices.of(voices, self.device)
        self.features = features
        self.crops = crops.Crops(features)
        torch.manual_seed(SEED + schedule.step)
        self.draws = crops.RandomPieces(speech.training, voices, np.random.default_rng(SEED + schedule.step))
        self.held_out = speech.held_out
        drawn = parameter_store.make(network.shapes(), network.initial, self.device)
        drawn |= parameter_store.make(objective.head_shapes(self.voices), network.initial, self.device)
        self.optimiser = torch.optim.AdamW(
            drawn.values(), lr=PEAK_RATE, weight_decay=0.02, fused=self.device.type == "cuda"
        )
        super().__init__(drawn, schedule, decay=DECAY, optimiser=self.optimiser)

    def step(self, batch: int = BATCH) -> dict[str, Tensor]:
        """One update; the loss terms stay on the device."""
        schedule = self.schedule
        members, count = self.draws.next(batch)
        members = members.to(self.device, non_blocking=True)
        heard = crops.disturbed(self.crops.cut(members, count))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            vectors = network.embed(self.parameters, heard)
        margin = objective.MARGIN * min(1.0, 5 * schedule.progress)
        with torch.autocast(self.device.type, enabled=False):
            terms = objective.losses(
                self.parameters, vectors.float(), self.voices.of_utterance[members], self.voices, margin
            )
        self.descend(self.optimiser, terms["loss"], schedule.rate(PEAK_RATE, warm_up=30), 5.0)
        return {name: term.detach() for name, term in terms.items()}

    def scores(self) -> dict[str, float]:
        """Held out, by the average of the parameters."""
        if not self.held_out:
            return {}
        vectors = embed_utterances(self.average.values, self.features, self.held_out)[self.held_out]
        return objective.scores(self.average.values, vectors, self.voices.of_utterance[self.held_out], self.voices)

    def shipped(self) -> dict[str, Tensor]:
        """The average rounded to half precision: what every file and vector of this training is
        made from.
        """
        return parameter_store.halved({name: self.average.values[name] for name in network.shapes()})


@torch.no_grad()
def embed_utterances(parameters: Mapping[str, Tensor], features: Features, members: list[int]) -> Tensor:
    """Vectors of whole utterances: float32 [all utterances, 192] with the rows of `members` filled.
    Equal lengths go together.
    """
    device = features.fbank.device
    cutter = crops.Crops(features)
    of_length: defaultdict[int, list[int]] = defaultdict(list)
    for member in members:
        of_length[features.tokens[member]].append(member)
    vectors = torch.zeros(len(features.tokens), SPEAKER_DIMENSION, device=device)
    for tokens in sorted(of_length):
        frames = crops.frames_of(tokens)
        for group in torch.split(torch.tensor(of_length[tokens], device=device), max(1, _FRAMES_AT_ONCE // frames)):
            vectors[group] = network.embed(parameters, crops.centred(cutter.whole(group, frames)))
    return vectors


def train(work: Path, minutes: float, device: torch.device, steps: int = 10**9, batch: int = BATCH) -> None:
    """Train until the time is over or the steps are done, then write everything."""
    torch.set_float32_matmul_precision("high")
    folder = work / FOLDER
    speech = Speech.read(work, audio=False)
    features = Features.read(work, speech, device, only=("fbank",))
    schedule, content = parameter_store.begun(folder, minutes, steps, device)
    training = Training(speech, features, schedule)
    if content:
        training.load(content)
    journal = Journal(folder, "speaker", schedule)

    def save() -> None:
        parameter_store.save(folder / parameter_store.CHECKPOINT, training.state())
        parameter_store.save(work / WEIGHTS, training.shipped())

    means = run(journal, lambda: training.step(batch), training.scores, save, REPORT_SECONDS)
    save()
    journal.report(means | training.scores())
    journal.close()
    write(work, training.shipped(), features)


def keep(work: Path, encoder: Path, device: torch.device) -> None:
    """Write what a training would, with the encoder of a `campplus.onnx`. Raises ValueError when
    the file is of another network.
    """
    (work / FOLDER).mkdir(exist_ok=True)
    speech = Speech.read(work, audio=False)
    write(work, network.read_onnx(encoder), Features.read(work, speech, device, only=("fbank",)))


def write(work: Path, shipped: Mapping[str, Tensor], features: Features) -> None:
    """speaker.pt, campplus.onnx and embeddings.npy, all from the same rounded weights."""
    parameter_store.save(work / WEIGHTS, shipped)
    network.write_onnx(work / ONNX, shipped)
    values = {name: tensor.to(features.fbank.device, torch.float32) for name, tensor in shipped.items()}
    vectors = embed_utterances(values, features, list(range(len(features.tokens)))).cpu()
    lengths = vectors.norm(dim=1)
    print(f"speaker vectors: {len(vectors)}, length {float(lengths.min()):.2f} to {float(lengths.max()):.2f}")
    np.save(work / EMBEDDINGS, vectors.numpy())


def read_vectors(work: Path, speech: Speech) -> Tensor:
    """Speaker vectors of all utterances, float32 [utterances, 192] of length 1. Raises ValueError
    when they are of other speech.
    """
    vectors = torch.from_numpy(np.load(work / EMBEDDINGS)).float()
    if vectors.shape != (len(speech.utterances), SPEAKER_DIMENSION):
        raise ValueError(
            f"{work / EMBEDDINGS}: {tuple(vectors.shape)} speaker vectors for {len(speech.utterances)} utterances"
        )
    return F.normalize(vectors, dim=1)


def main(arguments: list[str] | None = None) -> None:
    parser = commands.training("speaker.train", __doc__, "work folder with speech/ and features/ in it", minutes=1.5)
    parser.add_argument("--encoder", type=Path, metavar="FILE", help="keep the encoder of this campplus.onnx")
    options = parser.parse_args(arguments)
    if options.encoder:
        keep(options.work, options.encoder, commands.device_of(options))
        return
    train(options.work, options.minutes, commands.device_of(options), options.steps)


if __name__ == "__main__":
    main()
