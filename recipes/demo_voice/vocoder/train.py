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
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.training.progress import Figures, Journal, run
from recipes.demo_voice.training.recording import RecordingFailed
from recipes.demo_voice.training.speech import Speech
from recipes.demo_voice.vocoder import pitch
from recipes.demo_voice.vocoder.held_out import SENTENCES, HeldOut, HeldOutProcess
from recipes.demo_voice.vocoder.segments import RandomPieces
from recipes.demo_voice.vocoder.training import ADVERSARIAL_FROM, HEARD, SEED, Training
from services.token2wav.vocoder.weights import FILE, read_config

BATCH, FRAMES = 16, 32
REPORT_SECONDS, MEASURE_SECONDS = 20.0, 150.0


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
    torch.backends.cudnn.benchmark = False
    folder = work / name
    config = read_config(model_directory(work))
    speech = Speech.read(work, device)
    f0, first_frames = pitch.of_speech(speech)
    schedule, content = parameter_store.begun(folder, minutes, steps, device)
    draws = RandomPieces(speech, f0, first_frames, frames, np.random.default_rng(SEED + schedule.step))
    training = Training(config, draws, schedule, device)
    training.adversarial_from, training.heard = adversarial_from, heard
    if content:
        training.load(content)
    HeldOut.of(speech, f0, first_frames, config).save(folder / SENTENCES)
    held_out = HeldOutProcess(work, name, device)
    journal = Journal(folder, name, schedule)

    def skipped() -> Figures:
        return {"skipped": float(training.skipped)}

    def save() -> None:
        parameter_store.save(folder / parameter_store.CHECKPOINT, training.state())
        parameter_store.save(folder / FILE, training.shipped())

    def save_and_measure() -> None:
        save()
        held_out.measure(schedule, least_apart=MEASURE_SECONDS)

    with _on_recording_stream(training) if graphs else contextlib.nullcontext():
        means = run(journal, lambda: training.step(batch), skipped, save_and_measure, REPORT_SECONDS)
        save()
        journal.report({**means, **skipped()})
    held_out.finish()
    held_out.measure(schedule)
    held_out.finish()
    journal.close()


@contextlib.contextmanager
def _on_recording_stream(training: Training) -> Iterator[None]:
    """Steps inside are recorded and replayed; everything runs on one stream of its own."""
    stream = torch.cuda.Stream(training.device)  # type: ignore[no-untyped-call]  # torch's own
    training.record(stream)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        yield
    torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = commands.training("vocoder.train", __doc__, "work folder with speech/ in it", minutes=20, name="vocoder")
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
    device = commands.device_of(options)
    try:
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
            graphs=device.type == "cuda" if options.graphs is None else options.graphs,
        )
    except RecordingFailed as failure:
        print(f"vocoder: no CUDA graph of {failure}; going on without graphs", flush=True)
        # In place of this process, whose random numbers are lost with the recording; from the last
        # checkpoint if there is one.
        command = [sys.executable, "-m", "recipes.demo_voice.vocoder.train"]
        os.execv(sys.executable, [*command, *(sys.argv[1:] if arguments is None else arguments), "--no-graphs"])  # noqa: S606


if __name__ == "__main__":
    main()
