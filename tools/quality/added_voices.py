"""A model directory with more voices than it came with, the files of the one it is made from linked and left alone."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.frontend.speaker_file import FILE
from services.frontend.voice import Voice


def with_voices(model: Path, voices: Iterable[Voice], folder: Path) -> Path:
    """Fill the empty `folder` with links to everything in `model`, and a `spk2info.pt` that holds the voices too; `folder` again.

    A new voice takes the place of one of the same id.
    """
    known: dict[str, dict[str, Tensor]] = {}
    for path in model.resolve().iterdir():
        if path.name == FILE:
            known = torch.load(path, map_location="cpu", weights_only=True)
        else:
            (folder / path.name).symlink_to(path)
    torch.save(known | {voice.id: entry_of(voice) for voice in voices}, folder / FILE)
    return folder


def entry_of(voice: Voice) -> dict[str, Tensor]:
    """The zero-shot layout of compatibility specification section 2.7."""
    vector = _floats(voice.speaker_embedding)[None]
    prompt = {
        "prompt_text": torch.tensor([voice.prompt_text_ids], dtype=torch.int32),
        "llm_prompt_speech_token": torch.tensor([voice.prompt_speech_tokens], dtype=torch.int32),
        "flow_prompt_speech_token": torch.tensor([voice.prompt_speech_tokens], dtype=torch.int32),
        "prompt_speech_feat": _floats(voice.prompt_mel).reshape(1, -1, MEL_BINS),
    }
    lengths = {f"{field}_len": torch.tensor([value.shape[1]], dtype=torch.int32) for field, value in prompt.items()}
    return prompt | lengths | {"llm_embedding": vector, "flow_embedding": vector}


def _floats(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, "<f4").astype(np.float32))
