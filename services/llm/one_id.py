"""A row of an engine's logits before it samples: the head's bias is added, the decision made, and one id left that it can sample.

Works in whichever process the engine runs its logits processors; see docs/decisions/0009 for why the bias is added here.
"""

import functools
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.spec import SPEECH_ROWS
from services.llm.deciding import Decider
from services.llm.extended_vocabulary import HEAD_BIAS_TENSOR


@functools.lru_cache(maxsize=8)
def speech_bias(path: Path, text_ids: int, device: torch.device) -> Tensor:
    """The head's bias of the 6564 speech rows, float32, on the device."""
    return load_file(path)[HEAD_BIAS_TENSOR][text_ids : text_ids + SPEECH_ROWS].to(device=device, dtype=torch.float32)


def leave_one_id(logits: Tensor, decider: Decider, bias: Path, text_ids: int) -> None:
    """logits: [..., rows], one row of a head with the extended vocabulary, any float type; changed in place so that only the id that was
    decided can be sampled. Raises ValueError when it is more than one row, or a narrower one."""
    row = logits.reshape(-1) if logits.is_contiguous() else logits.view(-1)
    if row.numel() != logits.shape[-1] or row.numel() < text_ids + SPEECH_ROWS:
        raise ValueError(f"logits are {list(logits.shape)}, expected one row of at least {text_ids + SPEECH_ROWS}")
    speech = row[text_ids : text_ids + SPEECH_ROWS].float() + speech_bias(bias, text_ids, row.device)
    scores = torch.log_softmax(speech, dim=-1).cpu().numpy()
    chosen = decider.decide(np.asarray(scores, np.float32))
    row.fill_(-torch.inf)
    row[text_ids + chosen] = 0.0
