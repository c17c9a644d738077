"""`python -m recipes.demo_voice.vocoder.train WORK`: the HiFT vocoder, adversarially, on the
services' own network.

Needs speech/. Writes into WORK/NAME: `checkpoint.pt` (to go on from), `hift.pt` (averaged weights,
half precision, weight norm fused), journal.jsonl and journal.png, and two held-out sentences as
WAV, generated and true.

At first spectra alone teach; then discriminators join. The source follows the tracked pitch at
first and more and more the predicted one, which is what it follows when served.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Journal, Schedule
from recipes.demo_voice.training.speech import Speech
from recipes.demo_voice.vocoder import pitch
from recipes.demo_voice.vocoder.held_out import SENTENCES, HeldOut, HeldOutProcess
from recipes.demo_voice.vocoder.recording import RecordingFailed, Replayed
from recipes.demo_voice.vocoder.segments import RandomPieces
from recipes.demo_voice.vocoder.training import ADVERSARIAL_FROM, HEARD, SEED, Kind, Training
from services.token2wav.vocoder.config import read_config
from services.token2wav.vocoder.weights import FILE

BATCH, FRAMES = 16, 32
REPORT_SECONDS, MEASURE_SECONDS, SAVE_SECONDS = 20.0, 150.0, 60.0


class Means:
    """Means of terms over the steps since they were last asked for, summed on the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, terms: Mapping[str, Tensor]) -> None:
        for name, term in terms.items():
            self._sums[name] = self._sums[name] + term if name in self._sums else term
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Waits for the device."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


def train(
    work: Path,
    name: str,
    minutes: float,
    device: torch.device,
    *,
    steps: int = 10**9,
    batch: int = BATCH,
    frames: int = FRAMES,
    adversarial_from: float = ADVERSARIAL_FROM,
    heard: float = HEARD,
    graphs: bool = False,
) -> None:
    """Train until the time is over or the steps are done; everything is written at the end, and
    about every minute.

    graphs: record the steps as CUDA graphs. Raises RecordingFailed.
    """
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = False
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    config = read_config(model_directory(work))
    speech = Speech.read(work, device)
    f0, first_frames = pitch.of_speech(speech)
    checkpoint = folder / "checkpoint.pt"
    content = parameter_store.load(checkpoint, device) if checkpoint.exists() else None
    done = (float(str(content["seconds"])), int(str(content["step"]))) if content else (0.0, 0)
    schedule = Schedule(minutes, steps, *done)
    draws = RandomPieces(speech, f0, first_frames, frames, np.random.default_rng(SEED + schedule.step))
    training = Training(config, draws, schedule, device)
    training.adversarial_from, training.heard = adversarial_from, heard
    if content:
        training.load(content)
    HeldOut.of(speech, f0, first_frames, config).save(folder / SENTENCES)
    held_out, means = HeldOutProcess(work, name, device), Means()
    journal = Journal(folder, name, schedule)
    reported = measured = saved = time.monotonic()
    counted = schedule.step

    def report() -> None:
        nonlocal counted, reported
        per_second = (schedule.step - counted) / max(1e-6, time.monotonic() - reported)
        journal.report(means.take() | {"skipped": float(training.skipped), "steps_per_second": per_second})
        counted, reported = schedule.step, time.monotonic()

    def save() -> None:
        training.save(checkpoint)
        parameter_store.save(folder / FILE, training.shipped())

    def run() -> None:
        nonlocal measured, saved
        while not schedule.over:
            means.add(training.step(batch))
            journal.tick()
            now = time.monotonic()
            if now - reported > REPORT_SECONDS:
                report()
            if now - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
                if now - measured > MEASURE_SECONDS:
                    held_out.measure(schedule)
                    measured = time.monotonic()
        save()
        report()

    with on_recording_stream(training) if graphs else contextlib.nullcontext():
        run()
    held_out.finish()
    held_out.measure(schedule)
    held_out.finish()
    journal.close()


@contextlib.contextmanager
def on_recording_stream(training: Training) -> Iterator[Replayed[Kind]]:
    """Steps inside are recorded and replayed; everything runs on one stream of its own."""
    replayed = training.record()
    torch.cuda.synchronize()
    with torch.cuda.stream(replayed.stream):
        yield replayed
    torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.vocoder.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder with speech/ in it")
    parser.add_argument("--name", default="vocoder", help="folder of the results inside WORK")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=10**9, help="stop earlier, after so many steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=BATCH, help="segments of a step")
    parser.add_argument("--frames", type=int, default=FRAMES, help="mel frames of sound in a segment, 20 ms each")
    parser.add_argument(
        "--adversarial-from",
        type=float,
        default=ADVERSARIAL_FROM,
        help="progress, 0 to 1, at which discriminators join",
    )
    parser.add_argument(
        "--heard", type=float, default=HEARD, help="part of a segment that the discriminators hear, 0 to 1"
    )
    parser.add_argument(
        "--graphs", action=argparse.BooleanOptionalAction, help="record the steps as CUDA graphs (default: on a GPU)"
    )
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    graphs = device.type == "cuda" if options.graphs is None else options.graphs
    try:
        _train(options, device, graphs=graphs)
    except RecordingFailed as failure:
        print(f"vocoder: no CUDA graph of {failure}; going on without graphs", flush=True)
        _again_without_graphs(sys.argv[1:] if arguments is None else arguments)
    return 0


def _again_without_graphs(arguments: Sequence[str]) -> NoReturn:
    """In place of this process, whose random numbers are lost with the recording; from the last
    checkpoint if there is one.
    """
    os.execv(sys.executable, [sys.executable, "-m", "recipes.demo_voice.vocoder.train", *arguments, "--no-graphs"])  # noqa: S606


def _train(options: argparse.Namespace, device: torch.device, *, graphs: bool) -> None:
    train(
        options.work,
        options.name,
        options.minutes,
        device,
        steps=options.steps,
        batch=options.batch,
        frames=options.frames,
        adversarial_from=options.adversarial_from,
        heard=options.heard,
        graphs=graphs,
    )


if __name__ == "__main__":
    sys.exit(main())
