"""What a speaker vector is trained for: to distinguish voices, and to lie between the voices that a
blend is made of.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.teacher.plan import Blend

SCALE = 30.0
MARGIN = 0.2
_MIX_SCALE = 10.0
_PAIRS = 5.0


@dataclass(frozen=True)
class Voices:
    """Voices of the speech in order, the share of each base voice in each, their overlaps, and the
    voice of every utterance.
    """

    names: list[str]
    shares: Tensor
    overlaps: Tensor
    of_utterance: Tensor

    @classmethod
    def of(cls, voices: list[str], device: torch.device) -> "Voices":
        """voices: voice id of every utterance."""
        names, _, shares = mixes(voices)
        place = {name: index for index, name in enumerate(names)}
        return cls(
            names=names,
            shares=torch.from_numpy(shares).to(device),
            overlaps=torch.from_numpy(overlap(shares)).to(device),
            of_utterance=torch.from_numpy(np.array([place[voice] for voice in voices])).to(device),
        )


def mixes(voices: Iterable[str]) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """Distinct voices, base voices (both sorted) and the share of each base in each voice, [voices,
    bases].
    """
    distinct = sorted(set(voices))
    parts = [dict(Blend.parse(voice).parts) for voice in distinct]
    bases = sorted({base for each in parts for base in each})
    shares = np.array([[each.get(base, 0.0) for base in bases] for each in parts], np.float32)
    return distinct, bases, shares


def overlap(shares: NDArray[np.float32]) -> NDArray[np.float32]:
    """[voices, bases] -> [voices, voices]: how much of the one is in the other, 1 for the same mix,
    0 when they share no base.
    """
    common: NDArray[np.float32] = np.minimum(shares[:, None], shares[None]).sum(axis=2, dtype=np.float32)
    return common


def head_shapes(voices: Voices) -> dict[str, tuple[int, ...]]:
    """Tensors that are trained along and not shipped: a direction for each voice, and for each base
    voice.
    """
    return {
        "head.voices": (len(voices.names), SPEAKER_DIMENSION),
        "head.bases": (voices.shares.shape[1], SPEAKER_DIMENSION),
    }


def cosines(parameters: Mapping[str, Tensor], name: str, directions: Tensor) -> Tensor:
    """Unit vectors [B, 192] against each row of a head -> [B, rows]."""
    return directions @ F.normalize(parameters[name].float(), dim=1).T


def losses(
    parameters: Mapping[str, Tensor], vectors: Tensor, voice: Tensor, voices: Voices, margin: float
) -> dict[str, Tensor]:
    """vectors float32 [B, 192], voice int64 [B] -> terms and their sum under `loss`.

    voice: additive angular margin (Deng et al. 2019). mix: cross-entropy against the shares of the
    base voices. pairs: squared difference of the cosine of two vectors and the overlap of their
    voices.
    """
    directions = F.normalize(vectors, dim=1)
    cosine = cosines(parameters, "head.voices", directions)
    own = F.one_hot(voice, cosine.shape[1]).bool()
    sine = (1 - cosine.square()).clamp(min=1e-6).sqrt()
    shifted = cosine * math.cos(margin) - sine * math.sin(margin)
    voice_loss = F.cross_entropy(SCALE * torch.where(own, shifted, cosine), voice)
    mix_loss = F.cross_entropy(_MIX_SCALE * cosines(parameters, "head.bases", directions), voices.shares[voice])
    pairs_loss = (directions @ directions.T - voices.overlaps[voice][:, voice]).square().mean()
    return {
        "loss": voice_loss + mix_loss + _PAIRS * pairs_loss,
        "voice": voice_loss,
        "mix": mix_loss,
        "pairs": pairs_loss,
    }


@torch.no_grad()
def scores(parameters: Mapping[str, Tensor], vectors: Tensor, voice: Tensor, voices: Voices) -> dict[str, float]:
    """Of held-out vectors [N, 192]: accuracy among all voices, equal error rate of same-voice
    decisions, and the correlation between the cosine of two vectors and the overlap of their
    voices. The last two over all pairs; NaN with fewer than three vectors."""
    directions = F.normalize(vectors, dim=1)
    accuracy = (cosines(parameters, "head.voices", directions).argmax(dim=1) == voice).float().mean()
    upper = torch.triu_indices(len(voice), len(voice), 1, device=voice.device)
    cosine = (directions @ directions.T)[upper[0], upper[1]]
    overlaps = voices.overlaps[voice[upper[0]], voice[upper[1]]]
    same = voice[upper[0]] == voice[upper[1]]
    correlation = torch.corrcoef(torch.stack([cosine, overlaps]))[0, 1] if len(voice) > 2 else math.nan
    return {
        "accuracy": float(accuracy),
        "equal_error": equal_error(cosine.cpu(), same.cpu()),
        "correlation": float(correlation),
    }


def equal_error(score: Tensor, same: Tensor) -> float:
    """Share of same-voice pairs below the threshold, and of others above it, where both are alike;
    NaN without pairs of both kinds.
    """
    positives = same[score.argsort()].double()
    if positives.sum() in (0, len(positives)):
        return math.nan
    missed = positives.cumsum(0) / positives.sum()
    accepted = 1 - (1 - positives).cumsum(0) / (1 - positives).sum()
    place = int((missed - accepted).abs().argmin())
    return float((missed[place] + accepted[place]) / 2)
