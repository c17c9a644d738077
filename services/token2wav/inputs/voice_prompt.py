"""The voice as the decoder's tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.token2wav.inputs.request import Voice


@dataclass(frozen=True)
class VoicePrompt:
    """The voice as tensors, on the CPU.

    tokens: int64 [P], 25 Hz. mel: float32 [2P, 80], 50 Hz, time-major. embedding: float32 [192],
    not normalised. key: the voice's content hash, under which prompt state may be shared between
    requests; empty: it is never shared.
    """

    tokens: Tensor
    mel: Tensor
    embedding: Tensor
    key: str = ""


def as_prompt(voice: Voice) -> VoicePrompt:
    """Convert the request's voice to tensors."""
    return VoicePrompt(
        torch.from_numpy(voice.tokens), torch.from_numpy(voice.mel), torch.from_numpy(voice.embedding), voice.key
    )
