"""Sampling inside a hosted engine: add the head's bias to a row of logits, choose an id, and mask
all others.

Runs in the process in which the engine runs its logits processors; docs/decisions/0009 says why the
bias is added here.
"""

import functools
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.spec import SPEECH_ROWS
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_TENSOR
from services.llm.hosted.run_sampler import RunSampler


@functools.lru_cache(maxsize=8)
def speech_bias(path: Path, first: int, device: torch.device) -> Tensor:
    """The head's bias of the 6564 speech rows, float32, on the device."""
    return load_file(path)[HEAD_BIAS_TENSOR][first : first + SPEECH_ROWS].to(device=device, dtype=torch.float32)


def force_token(logits: Tensor, sampler: RunSampler, bias: Path | None, first: int) -> None:
    """Change logits [..., rows], one row of any float type, in place so that the engine can sample
    only the id that `sampler` chooses. bias: file of the head's bias, None where the head includes
    it. first: index of speech token 0. Raises ValueError for more than one row, or a row that is
    too narrow.
    """
    row = logits.reshape(-1) if logits.is_contiguous() else logits.view(-1)
    if row.numel() != logits.shape[-1] or row.numel() < first + SPEECH_ROWS:
        raise ValueError(f"logits are {list(logits.shape)}, expected one row of at least {first + SPEECH_ROWS}")
    speech = row[first : first + SPEECH_ROWS].float()
    if bias is not None:
        speech = speech + speech_bias(bias, first, row.device)
    scores = torch.log_softmax(speech, dim=-1).cpu().numpy()
    chosen = sampler.decide(np.asarray(scores, np.float32))
    row.fill_(-torch.inf)
    row[first + chosen] = 0.0
