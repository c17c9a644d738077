"""The features on disk that the trainings read: what `python -m recipes.demo_voice.features`
stores, float16, utterances end to end.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS, SAMPLES_PER_TOKEN
from recipes.demo_voice.training.speech import Speech
from services.frontend.prompts.features import fbank, whisper_mel

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
        tokens = [utterance.samples // SAMPLES_PER_TOKEN for utterance in speech.utterances]
        first = [0, *np.cumsum(tokens).tolist()][: len(tokens)]

        def stream(name: str) -> Tensor:
            if name not in only:
                return torch.empty(0, STREAMS[name], dtype=torch.float16, device=device)
            values = np.fromfile(feature_file(work, name), dtype=np.float16).reshape(-1, STREAMS[name])
            expected = sum(tokens) * frames_per_token(name)
            if len(values) != expected:
                raise ValueError(
                    f"{feature_file(work, name)}: {len(values)} frames, expected {expected}; make it again"
                )
            return torch.from_numpy(values).to(device)

        return cls(
            mel=stream("mel"),
            log_mel=stream("log_mel"),
            fbank=stream("fbank"),
            tokens=tokens,
            first=first,
            first_on_device=torch.tensor(first, device=device),
        )


def feature_file(work: Path, name: str) -> Path:
    return work / "features" / f"{name}.f16"


def frames_per_token(name: str) -> int:
    return 2 if name == "mel" else LOG_MEL_PER_TOKEN
