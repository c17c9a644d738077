"""Conditional flow matching with classifier-free dropout (Lipman et al., ICLR 2023; Ho and Salimans, 2022).

Upstream's training facts: sigma_min 1e-6, cosine times, mu, speaker and condition dropped together in a fifth of the rows.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES
from recipes.demo_voice.flow.corpus import Batch
from services.token2wav.flow.estimator import Mask
from services.token2wav.flow.network import Network
from services.token2wav.flow.past import Window, chunk_mask

_SIGMA_MIN = 1e-6
_WITHOUT_CONDITION = 0.2
_CORRUPT_ROWS, _CORRUPT_TOKENS = 0.3, 0.03


def mu_of(network: Network, batch: Batch, *, streaming: bool) -> Tensor:
    """float32 [rows, 2n, 80]."""
    rows = batch.tokens.shape[0]
    return network.mu(batch.tokens, batch.ahead, batch.known, [0], Window.whole(rows), chunked=streaming)


def mask_of(frames: int, device: torch.device, *, streaming: bool) -> Mask | None:
    """For rows that are all of them real: chunk masks when streaming, else none."""
    return Mask(torch.ones(1, frames, 1, device=device), chunk_mask(frames, CHUNK_FRAMES, device)) if streaming else None


def shown(batch: Batch) -> Tensor:
    """The mel up to the condition's end, zeros behind: [rows, 2n, 80]."""
    at = torch.arange(batch.mel.shape[1], device=batch.mel.device)
    return batch.mel * (at < batch.condition[:, None])[:, :, None]


def corrupted(tokens: Tensor, codes: int) -> Tensor:
    """A few random tokens in some rows: the language model makes mistakes too."""
    rate = _CORRUPT_TOKENS * (torch.rand(tokens.shape[0], 1, device=tokens.device) < _CORRUPT_ROWS)
    return torch.where(torch.rand(tokens.shape, device=tokens.device) < rate, torch.randint_like(tokens, codes), tokens)


def losses(network: Network, batch: Batch, *, streaming: bool) -> tuple[Tensor, Tensor]:
    """Mean squared error of the velocity, mean absolute error of mu against the mel; scalars, float32."""
    device, rows, mel = batch.mel.device, batch.mel.shape[0], batch.mel
    mu = mu_of(network, batch, streaming=streaming)
    speaker = network.speaker(batch.speaker)[:, None].expand(-1, mel.shape[1], -1)
    u = torch.rand(rows, device=device)
    t = 1 - torch.cos(0.5 * math.pi * u)
    noise = torch.randn_like(mel)
    x = (1 - (1 - _SIGMA_MIN) * t[:, None, None]) * noise + t[:, None, None] * mel
    kept = (torch.rand(rows, 1, 1, device=device) >= _WITHOUT_CONDITION).float()
    inputs = torch.cat((x, torch.cat((mu, speaker, shown(batch)), dim=2) * kept), dim=2)
    mask = mask_of(mel.shape[1], device, streaming=streaming)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        velocity = network.estimator(inputs, network.estimator.time_embedding(t), Window.whole(rows), mask)
    return F.mse_loss(velocity.float(), mel - (1 - _SIGMA_MIN) * noise), F.l1_loss(mu, mel)
