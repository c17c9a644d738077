"""What the length of the vocoder's windows costs, streaming 50 mel frames at a time.

`python -m bench.vocoder_window [--published]`: milliseconds of processor time on one thread per
second of sound, for the model in tests/golden/tiny or for random weights of the published sizes. On
a CUDA device (`--device cuda`) it is wall time.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_FRAMES
from services.token2wav.vocoder.config import read_config
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder
from services.token2wav.vocoder.weights import expected_tensors

TINY = ModelDirectory(Path("tests/golden/tiny"))
FRAMES = 6 * CHUNK_FRAMES
WARM_CHUNKS = 2


def of_published_size(device: torch.device) -> Vocoder:
    """Random weights, small enough that nothing saturates."""
    config = replace(read_config(TINY), base_channels=512, f0_channels=512)
    generator, weights = torch.Generator().manual_seed(0), {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("original0"):
            continue
        scale = (0.5 / prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.01
        fused = name.replace(".parametrizations.weight.original1", ".weight")
        weights[fused] = (
            torch.ones(shape) if name.endswith("alpha") else scale * torch.randn(shape, generator=generator)
        )
    return Vocoder(config, weights, device)


def streaming(vocoder: Vocoder, mel: torch.Tensor, clock: Callable[[], float], frames: int) -> float:
    """Milliseconds per second of sound, the median of the chunks after the first ones."""
    state, costs = vocoder.start(0, 0, 0, frames), []
    for begin in range(0, FRAMES, CHUNK_FRAMES):
        began = clock()
        (samples,) = vocoder.step([state], [mel[:, begin : begin + CHUNK_FRAMES]], [False])
        spent = clock() - began
        if samples is not None and begin >= WARM_CHUNKS * CHUNK_FRAMES:
            costs.append(1000 * spent / (samples.shape[0] / 24_000))
    return sorted(costs)[len(costs) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--published", action="store_true", help="random weights of the published sizes")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(options.device)

    def wall() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    clock = time.process_time if device.type == "cpu" else wall
    vocoder = of_published_size(device) if options.published else load_vocoder(TINY, device)
    mel = torch.randn(80, FRAMES, generator=torch.Generator().manual_seed(0)).to(device)
    for frames in (5, 10, 25, 50):
        streaming(vocoder, mel, clock, frames)
        print(
            f"windows of {frames:2d} frames: {streaming(vocoder, mel, clock, frames):6.1f} ms per second of sound",
            flush=True,
        )
    vocoder.offline(mel, 0, 0)
    began = clock()
    vocoder.offline(mel, 0, 0)
    print(f"whole at once:        {1000 * (clock() - began) / (FRAMES / 50):6.1f} ms per second of sound")


if __name__ == "__main__":
    main()
