"""`python -m recipes.demo_voice.speaker.train WORK`: the speaker encoder, and the speaker vector of
every utterance.

Needs speech/ and features/. Writes into WORK/speaker: `checkpoint.pt` (to go on from), `speaker.pt`
(half precision), `campplus.onnx` (the same network as the frontend reads it), `embeddings.npy`
(float32 [utterances, 192], whole utterances), journal.jsonl and journal.png.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.features import Features
from recipes.demo_voice.speaker import crops, network, objective
from recipes.demo_voice.speaker.network import write_onnx
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule
from recipes.demo_voice.training.speech import Speech

FOLDER = "speaker"
WEIGHTS = f"{FOLDER}/speaker.pt"
EMBEDDINGS = f"{FOLDER}/embeddings.npy"
ONNX = f"{FOLDER}/campplus.onnx"
BATCH = 256
PEAK_RATE = 2e-3
DECAY = 0.999
SEED = 20
_FRAMES_AT_ONCE = 60_000


class Training:
    """Parameters, their average and the optimiser, all on one device."""

    def __init__(self, speech: Speech, features: Features, schedule: Schedule) -> None:
        self.device = features.fbank.device
        voices = [utterance.voice for utterance in speech.utterances]
        self.voices = objective.Voices.of(voices, self.device)
        self.features, self.schedule = features, schedule
        self.crops = crops.Crops(features)
        torch.manual_seed(SEED + schedule.step)
        self.draws = crops.RandomPieces(speech.training, voices, np.random.default_rng(SEED + schedule.step))
        self.held_out = speech.held_out
        self.parameters = parameter_store.make(network.shapes(), network.initial, self.device)
        self.parameters |= parameter_store.make(objective.head_shapes(self.voices), objective.initial, self.device)
        self.average = parameter_store.Average(self.parameters, DECAY)
        fused = self.device.type == "cuda"
        self.optimiser = torch.optim.AdamW(self.parameters.values(), lr=PEAK_RATE, weight_decay=0.02, fused=fused)

    def step(self, batch: int = BATCH) -> dict[str, Tensor]:
        """One update; the loss terms stay on the device."""
        schedule = self.schedule
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.rate(PEAK_RATE, warm_up=30)
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
        self.optimiser.zero_grad(set_to_none=True)
        terms["loss"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 5.0)
        self.optimiser.step()
        schedule.step += 1
        self.average.update(schedule.step)
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

    def save(self, path: Path) -> None:
        plain = {name: tensor.detach() for name, tensor in self.parameters.items()}
        content: dict[str, object] = {
            "parameters": plain,
            "average": self.average.values,
            "optimiser": self.optimiser.state_dict(),
        }
        parameter_store.save(path, content | {"step": self.schedule.step, "seconds": self.schedule.seconds})

    @torch.no_grad()
    def load(self, content: Mapping[str, object]) -> None:
        """Go on from `save`. Raises ValueError when the tensors are of other voices or sizes."""
        if not isinstance(content["optimiser"], dict):
            raise ValueError("not a checkpoint of this training")
        parameter_store.restore(self.parameters, self.average, content)
        self.optimiser.load_state_dict(content["optimiser"])


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
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    folder = work / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    speech = Speech.read(work, audio=False)
    features = Features.read(work, speech, device, only=("fbank",))
    checkpoint = folder / "checkpoint.pt"
    content = parameter_store.load(checkpoint, device) if checkpoint.exists() else None
    done = (float(str(content["seconds"])), int(str(content["step"]))) if content else (0.0, 0)
    schedule = Schedule(minutes, steps, *done)
    training = Training(speech, features, schedule)
    if content:
        training.load(content)
    journal = Journal(folder, "speaker", schedule)
    reported = saved = time.monotonic()
    terms: dict[str, Tensor] = {}
    while not schedule.over:
        terms = training.step(batch)
        journal.tick()
        if time.monotonic() - reported > 20:
            journal.report({name: float(term) for name, term in terms.items()} | training.scores())
            reported = time.monotonic()
        if time.monotonic() - saved > 60:
            training.save(checkpoint)
            parameter_store.save(work / WEIGHTS, training.shipped())
            saved = time.monotonic()
    training.save(checkpoint)
    journal.report({name: float(term) for name, term in terms.items()} | training.scores())
    journal.close()
    write(work, training.shipped(), features)


def write(work: Path, shipped: Mapping[str, Tensor], features: Features) -> None:
    """speaker.pt, campplus.onnx and embeddings.npy, all from the same rounded weights."""
    parameter_store.save(work / WEIGHTS, shipped)
    write_onnx(work / ONNX, shipped)
    values = {name: tensor.to(features.fbank.device, torch.float32) for name, tensor in shipped.items()}
    vectors = embed_utterances(values, features, list(range(len(features.tokens)))).cpu()
    lengths = vectors.norm(dim=1)
    print(f"speaker vectors: {len(vectors)}, length {float(lengths.min()):.2f} to {float(lengths.max()):.2f}")
    np.save(work / EMBEDDINGS, vectors.numpy())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.speaker.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder with speech/ and features/ in it")
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--steps", type=int, default=10**9, help="stop here even when there is time left")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    train(options.work, options.minutes, torch.device(options.device), options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
