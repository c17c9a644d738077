"""`python -m recipes.demo_voice.vocoder.check WORK`: what a step of the training costs here, and
that a replayed one does what it should.

Prints steps a second with and without CUDA graphs for each batch size, how far the update of a
replayed step is from that of an ordinary one (compared with how far two ordinary ones are from each
other), and the kernels that take longest. Trains nothing and writes nothing.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.speech import Speech
from recipes.demo_voice.vocoder import pitch
from recipes.demo_voice.vocoder.recording import WARM_UPS, RecordingFailed, Replayed
from recipes.demo_voice.vocoder.segments import RandomPieces
from recipes.demo_voice.vocoder.train import FRAMES, on_recording_stream
from recipes.demo_voice.vocoder.training import HEARD, Kind, Training
from services.token2wav.vocoder.config import read_config

STEPS = 40


def per_second(training: Training, batch: int, steps: int) -> float:
    """Steps a second, after all kinds of them have been recorded if they are to be."""
    for _ in range(20 * WARM_UPS if training.replayed else 2):
        training.step(batch)
    _wait(training.device)
    began = time.monotonic()
    for _ in range(steps):
        training.step(batch)
    _wait(training.device)
    return steps / (time.monotonic() - began)


def difference(training: Training, replayed: Replayed[Kind], batch: int) -> tuple[float, float]:
    """Of the updates of generator and judges by the same step from the same state, relative to its
    length: two ordinary ones, and an ordinary and a replayed one. Must run on the stream of
    `replayed`."""
    segments = training.draws.next(batch)
    kind = Kind(segments.stretch, judging=True)
    inputs = [segments.mel, segments.f0, segments.wave, training.knobs()]
    for _ in range(WARM_UPS):
        replayed(kind, inputs)
    # Recorded before anything is compared: recording moves the random numbers on.
    replayed(kind, inputs)
    tensors = _state(training)
    before, randomness = [tensor.detach().clone() for tensor in tensors], torch.cuda.get_rng_state(training.device)

    def update(step: Callable[[Kind, Sequence[Tensor]], Tensor]) -> list[Tensor]:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        torch.cuda.set_rng_state(randomness, training.device)
        step(kind, inputs)
        moved = (*training.sound.parameters, *training.pitch.parameters, *training.judges.parameters)
        return [tensor.detach() - value for tensor, value in zip(moved, before, strict=False)]

    first, second, third = update(training.update), update(training.update), update(replayed)

    def apart(a: list[Tensor], b: list[Tensor]) -> float:
        return float(
            torch.cat([(x - y).flatten() for x, y in zip(a, b, strict=True)]).norm()
            / torch.cat([x.flatten() for x in a]).norm()
        )

    return apart(first, second), apart(first, third)


def _state(training: Training) -> list[Tensor]:
    """Every tensor that a step changes, the parameters first."""
    descents = (training.sound, training.pitch, training.judges)
    parameters = [tensor for descent in descents for tensor in descent.parameters]
    moments = [value for descent in descents for state in descent.optimiser.state.values() for value in state.values()]
    return parameters + moments


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def check(work: Path, device: torch.device, batches: Sequence[int], steps: int, heard: float) -> None:
    """Everything that the head of this file promises; a graph that cannot be recorded ends it."""
    torch.backends.cudnn.benchmark = False
    config = read_config(model_directory(work))
    speech = Speech.read(work, device)
    f0, first_frames = pitch.of_speech(speech)

    def start() -> Training:
        # As if under way, so that rates are what they will be.
        schedule = Schedule(minutes=1e9, step=1000)
        training = Training(
            config, RandomPieces(speech, f0, first_frames, FRAMES, np.random.default_rng(0)), schedule, device
        )
        training.judging_since, training.heard = 0, heard
        return training

    for batch, judging in itertools.product(batches, (False, True)):
        training = start()
        training.adversarial_from = 0.0 if judging else 2.0
        judges = "with" if judging else "without"
        line = f"batch {batch}, {judges} judges: {per_second(training, batch, steps):.1f} steps/s"
        if device.type == "cuda":
            with on_recording_stream(training) as replayed:
                line += f", replayed {per_second(training, batch, steps):.1f}"
                if judging:
                    line += "; updates differ by {:.1e} and, replayed, by {:.1e}".format(
                        *difference(training, replayed, batch)
                    )
        print(f"{line}; skipped {float(training.skipped):g}", flush=True)
    profile(start(), batches[0])


def profile(training: Training, batch: int) -> None:
    """Print the kernels of three ordinary steps that take longest."""
    training.adversarial_from = 0.0
    training.step(batch)
    on_device = training.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CUDA if on_device else torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(3):
            training.step(batch)
        _wait(training.device)
    order = "self_device_time_total" if on_device else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=90))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.vocoder.check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder with speech/ in it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 16], help="batch sizes")
    parser.add_argument("--steps", type=int, default=STEPS, help="measured of each")
    parser.add_argument(
        "--heard", type=float, default=HEARD, help="part of a segment that the discriminators hear, 0 to 1"
    )
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.index is not None:
        torch.cuda.set_device(device)
    try:
        check(options.work, device, options.batches, options.steps, options.heard)
    except RecordingFailed as failure:
        print(f"no CUDA graph of {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
