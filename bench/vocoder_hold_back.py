"""What a smaller hold-back of the vocoder costs in exactness, on a recorded mel.

`python -m bench.vocoder_hold_back [DIR]`: DIR is a model directory with `flow_mel.npz` next to the
weights. Prints, for each hold-back in mel frames, the largest and the root-mean-square difference
from the sound rendered whole, relative to the sound's standard deviation, and the speech tokens
(and their duration) that the first sound waits for less than with the exact hold-back.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

SEEDS = (0, 1, 2)


def differences(vocoder: Vocoder, mel: torch.Tensor) -> tuple[float, float]:
    """Largest and root-mean-square difference of the streamed sound from the whole, in standard
    deviations of the sound.
    """
    largest, squares = 0.0, []
    for seed in SEEDS:
        whole = vocoder.offline(mel, seed, 0)
        (streamed,) = vocoder.step([vocoder.start(seed, 0)], [mel], [True])
        if streamed is None:
            raise ArithmeticError("the vocoder made no samples")
        error = (streamed - whole) / whole.std()
        largest = max(largest, float(error.abs().max()))
        squares.append(float(error.square().mean()))
    return largest, float(np.mean(squares)) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("tests/golden/tiny"))
    directory = ModelDirectory(parser.parse_args().directory)
    with np.load(directory.file("flow_mel.npz"), allow_pickle=False) as arrays:
        mel = torch.from_numpy(arrays["mel_offline"][0])
    exact = load_vocoder(directory, torch.device("cpu")).hold_back_frames
    print(f"{mel.shape[1]} frames, {len(SEEDS)} seeds; exact hold-back {exact} frames")
    print(
        "| hold-back (frames) | max error / std | rms error / std | tokens earlier | sound earlier (ms) "
        "|\n|---|---|---|---|---|"
    )
    for hold_back in range(exact, F0Predictor.reach, -1):
        largest, mean = differences(load_vocoder(directory, torch.device("cpu"), hold_back), mel)
        saved = exact - hold_back
        print(f"| {hold_back} | {largest:.1e} | {mean:.1e} | {saved / MEL_FRAMES_PER_TOKEN:g} | {20 * saved} |")


if __name__ == "__main__":
    main()
