"""`python -m recipes.demo_voice.features WORK`: everything the trainings hear, computed once.

Per utterance, by the very functions the frontend uses: the flow's mel (50 frames a second),
Whisper's log-mel in front of the speech tokenizer (100), Kaldi's filterbank in front of the speaker
encoder (about 100). Stored as float16, utterances end to end.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import Tensor
from tqdm import tqdm

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN
from recipes.demo_voice.features import FBANK_PER_TOKEN, STREAMS, feature_file, frames_per_token
from recipes.demo_voice.training.speech import Speech, mapped_waves
from services.frontend.prompts.features import fbank, mel, whisper_mel
from services.frontend.prompts.features.resample import resample


def compute(work: Path, device: str, count: int) -> None:
    """Compute and store all features with `count` processes; on several GPUs in turn when `device`
    is cuda.
    """
    speech = Speech.read(work, audio=False)
    total = sum(utterance.samples for utterance in speech.utterances) // SAMPLES_PER_TOKEN
    (work / "features").mkdir(exist_ok=True)
    for name, bins in STREAMS.items():
        np.memmap(feature_file(work, name), np.float16, "w+", shape=(total * frames_per_token(name), bins)).flush()
    if count == 1:
        _part(0, 1, work, device)
        return
    processes.spawn(_part, args=(count, work, device), nprocs=count)  # type: ignore[attr-defined, no-untyped-call]


def _part(index: int, count: int, work: Path, device_name: str) -> None:
    torch.set_num_threads(1)
    device = (
        torch.device("cuda", index % torch.cuda.device_count()) if device_name == "cuda" else torch.device(device_name)
    )
    speech, wave = Speech.read(work, audio=False), mapped_waves(work)
    tokens = [utterance.samples // SAMPLES_PER_TOKEN for utterance in speech.utterances]
    first = [0, *np.cumsum(tokens).tolist()]
    files = {
        name: np.memmap(feature_file(work, name), np.float16, "r+", shape=(first[-1] * frames_per_token(name), bins))
        for name, bins in STREAMS.items()
    }
    mine = range(index * len(tokens) // count, (index + 1) * len(tokens) // count)
    for number in tqdm(mine, desc="features", unit="utterance", disable=index > 0, mininterval=5.0):
        for name, values in features_of(wave(speech.utterances[number]), device).items():
            start, frames = first[number] * frames_per_token(name), tokens[number] * frames_per_token(name)
            files[name][start : start + frames] = values.numpy()
    for file in files.values():
        file.flush()


def features_of(wave: Tensor, device: torch.device) -> dict[str, Tensor]:
    """float32 [samples] at 24 kHz, a multiple of 960 -> mel, log_mel and fbank as in `Features`,
    float16 on the CPU.
    """
    tokens = wave.shape[0] // SAMPLES_PER_TOKEN
    there = wave.to(device)[None]
    low = resample(there, SAMPLE_RATE, whisper_mel.RATE)
    banks = fbank.kaldi_fbank(low[0].cpu())
    missing = FBANK_PER_TOKEN * tokens - banks.shape[0]
    banks = torch.cat([banks, banks[-1:].expand(missing, -1)])
    streams = {"mel": mel.mel_spectrogram(there)[0].T, "log_mel": whisper_mel.whisper_log_mel(low)[0].T, "fbank": banks}
    return {name: values.to("cpu", torch.float16) for name, values in streams.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.features", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder with speech/ in it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args(arguments)
    compute(options.work, options.device, options.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
