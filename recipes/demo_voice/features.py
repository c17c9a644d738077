"""`python -m recipes.demo_voice.features WORK`: everything the trainings hear, computed once and
read by each.

Per utterance, by the very functions the frontend uses: the flow's mel (50 frames a second),
Whisper's log-mel in front of the speech tokenizer (100), Kaldi's filterbank in front of the speaker
encoder (about 100). Stored as float16, utterances end to end.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import Tensor
from tqdm import tqdm

from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_TOKEN
from recipes.demo_voice.training import commands
from recipes.demo_voice.training.speech import Speech, mapped_waves
from services.frontend.prompts.features import fbank, mel, whisper_mel
from services.frontend.prompts.features.resample import resample

LOG_MEL_PER_TOKEN = 4
FBANK_PER_TOKEN = 4
STREAMS = {"mel": MEL_BINS, "log_mel": whisper_mel.BINS, "fbank": fbank.BINS}
"""Values of each frame, by stream."""


@dataclass(frozen=True)
class Features:
    """All utterances of a `Speech` end to end, in its order.

    mel: float16 [50 Hz frames, 80]. log_mel: float16 [100 Hz frames, 128]. fbank: float16 [100 Hz
    frames, 80], mean not taken off; the last two frames of each utterance repeat the last whole
    window. tokens: 25 Hz lengths of the utterances. first: token at which each starts; its mel
    starts at 2 * first, log_mel and fbank at 4 * first. All tensors lie on one device; tokens and
    first on the CPU too.
    """

    mel: Tensor
    log_mel: Tensor
    fbank: Tensor
    tokens: list[int]
    first: list[int]
    first_on_device: Tensor

    @classmethod
    def read(
        cls, work: Path, speech: Speech, device: torch.device, *, only: tuple[str, ...] = tuple(STREAMS)
    ) -> "Features":
        """What `python -m recipes.demo_voice.features` wrote; streams that are not in `only` are
        left empty.
        """

        def stream(name: str) -> Tensor:
            if name not in only:
                return torch.empty(0, STREAMS[name], dtype=torch.float16, device=device)
            values = np.fromfile(feature_file(work, name), dtype=np.float16).reshape(-1, STREAMS[name])
            expected = sum(speech.tokens) * frames_per_token(name)
            if len(values) != expected:
                raise ValueError(
                    f"{feature_file(work, name)}: {len(values)} frames, expected {expected}; make it again"
                )
            return torch.from_numpy(values).to(device)

        return cls(
            mel=stream("mel"),
            log_mel=stream("log_mel"),
            fbank=stream("fbank"),
            tokens=speech.tokens,
            first=speech.first,
            first_on_device=torch.tensor(speech.first, device=device),
        )


def feature_file(work: Path, name: str) -> Path:
    return work / "features" / f"{name}.f16"


def frames_per_token(name: str) -> int:
    return 2 if name == "mel" else LOG_MEL_PER_TOKEN


def compute(work: Path, device: str, count: int) -> None:
    """Compute and store all features with `count` processes; on several GPUs in turn when `device`
    is cuda.
    """
    speech = Speech.read(work, audio=False)
    (work / "features").mkdir(exist_ok=True)
    for name in STREAMS:
        _mapped(work, name, "w+", speech).flush()
    if count == 1:
        _part(0, 1, work, device)
        return
    processes.spawn(_part, args=(count, work, device), nprocs=count)  # type: ignore[attr-defined, no-untyped-call]


def _mapped(work: Path, name: str, mode: Literal["r+", "w+"], speech: Speech) -> np.memmap[Any, np.dtype[np.float16]]:
    shape = (sum(speech.tokens) * frames_per_token(name), STREAMS[name])
    return np.memmap(feature_file(work, name), np.float16, mode, shape=shape)


def _part(index: int, count: int, work: Path, device_name: str) -> None:
    torch.set_num_threads(1)
    device = (
        torch.device("cuda", index % torch.cuda.device_count()) if device_name == "cuda" else torch.device(device_name)
    )
    speech, wave = Speech.read(work, audio=False), mapped_waves(work)
    files = {name: _mapped(work, name, "r+", speech) for name in STREAMS}
    total = len(speech.utterances)
    mine = range(index * total // count, (index + 1) * total // count)
    for number in tqdm(mine, desc="features", unit="utterance", disable=index > 0, mininterval=5.0):
        for name, values in features_of(wave(speech.utterances[number]), device).items():
            start = speech.first[number] * frames_per_token(name)
            files[name][start : start + len(values)] = values.numpy()
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


def main(arguments: list[str] | None = None) -> None:
    parser = commands.stage("features", __doc__, "work folder with speech/ in it")
    commands.add_device(parser)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args(arguments)
    compute(options.work, options.device, options.processes)


if __name__ == "__main__":
    main()
