"""What the flow is trained for: conditional flow matching with classifier-free dropout (Lipman et
al., ICLR 2023; Ho and Salimans, 2022). And what comes of it: how far the served solver's mel is
from the truth on held-out utterances.

Upstream's training facts: sigma_min 1e-6, cosine times, mu, speaker and condition dropped together
in a fifth of the rows. Ours: only the ten times at which the served solver asks are trained, and mu
is trained towards the mel less its mean, so that the zeros of a dropped mu stand for the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from recipes.demo_voice.flow.corpus import Batch, Corpus
from recipes.demo_voice.flow.pieces import RandomPieces, equally_long
from recipes.demo_voice.training.speech import by_length
from services.token2wav.flow.attention import Mask, chunk_mask
from services.token2wav.flow.solver import ROWS, Solver
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig

_SIGMA_MIN = 1e-6
_WITHOUT_CONDITION = 0.2
_CORRUPT_ROWS, _CORRUPT_TOKENS = 0.3, 0.03
_TOKENS = 6_000
KINDS = ("", "_streaming", "_prompt", "_prompt_streaming")
"""Alone or behind a prompt, under full attention or streaming masks."""
BRIEF = ("", "_prompt_streaming")
"""The ends of that range."""


@dataclass(frozen=True)
class RandomDraws:
    """All that is random in one step.

    noise: float32 [rows, 2n, 80], normal. rolls: float32 [rows, 3 + 2n], uniform in [0, 1).
    """

    noise: Tensor
    rolls: Tensor

    @classmethod
    def drawn(cls, rows: int, tokens: int, generator: torch.Generator) -> "RandomDraws":
        """On the device of the generator."""
        noise = torch.empty(rows, MEL_FRAMES_PER_TOKEN * tokens, MEL_BINS, device=generator.device)
        rolls = torch.empty(rows, 3 + 2 * tokens, device=generator.device)
        return cls(noise.normal_(generator=generator), rolls.uniform_(generator=generator))

    @property
    def times(self) -> Tensor:
        """float32 [rows]: the ten at which the served solver asks, each in as many rows as the
        others.
        """
        rows, device = self.rolls.shape[0], self.rolls.device
        step = (torch.arange(rows, device=device) + self.rolls[:, 0]) * (EULER_STEPS / rows)
        return 1 - torch.cos(step.long().clamp(max=EULER_STEPS - 1) * (0.5 * math.pi / EULER_STEPS))

    @property
    def conditioned(self) -> Tensor:
        """float32 [rows, 1, 1]: zero where the row does without its condition."""
        return (self.rolls[:, 1] >= _WITHOUT_CONDITION).float()[:, None, None]

    def corrupted(self, tokens: Tensor, codes: int) -> Tensor:
        """A few random tokens in some rows: the language model makes mistakes too."""
        rate = _CORRUPT_TOKENS * (self.rolls[:, 2:3] < _CORRUPT_ROWS)
        swapped, others = self.rolls[:, 3:].chunk(2, dim=1)
        return torch.where(swapped < rate, (others * codes).long().clamp(max=codes - 1), tokens)


def mu_of(network: UnetNetwork, batch: Batch, *, streaming: bool) -> Tensor:
    """float32 [rows, 2n, 80]."""
    rows = batch.tokens.shape[0]
    return network.mu(batch.tokens, batch.ahead, batch.known, [0], CachedPass.whole(rows), chunked=streaming)


def mask_of(frames: int, device: torch.device, *, streaming: bool) -> Mask | None:
    """For rows that are all of them real: chunk masks when streaming, else none."""
    return (
        Mask(torch.ones(1, frames, 1, device=device), chunk_mask(frames, CHUNK_FRAMES, device)) if streaming else None
    )


def shown(batch: Batch) -> Tensor:
    """The mel up to the condition's end, zeros behind: [rows, 2n, 80]."""
    at = torch.arange(batch.mel.shape[1], device=batch.mel.device)
    return batch.mel * (at < batch.condition[:, None])[:, :, None]


def losses(
    network: UnetNetwork, batch: Batch, chances: RandomDraws, mean: Tensor, *, streaming: bool
) -> tuple[Tensor, Tensor]:
    """Mean squared error of the velocity, mean absolute error of mu against the mel less `mean`
    [80]; scalars, float32.
    """
    device, mel, noise = batch.mel.device, batch.mel, chances.noise
    mu = mu_of(network, batch, streaming=streaming)
    speaker = network.speaker(batch.speaker)[:, None].expand(-1, mel.shape[1], -1)
    t = chances.times
    x = (1 - (1 - _SIGMA_MIN) * t[:, None, None]) * noise + t[:, None, None] * mel
    inputs = torch.cat((x, torch.cat((mu, speaker, shown(batch)), dim=2) * chances.conditioned), dim=2)
    mask = mask_of(mel.shape[1], device, streaming=streaming)
    # Casts that are kept for later would point into a recorded step's memory.
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
        velocity = network.estimator(inputs, network.estimator.time_embedding(t), CachedPass.whole(len(mel)), mask)
    return F.mse_loss(velocity.float(), mel - (1 - _SIGMA_MIN) * noise), F.l1_loss(mu, mel - mean)


@torch.no_grad()
def solve(network: UnetNetwork, solver: Solver, batch: Batch, noise: Tensor, *, streaming: bool) -> Tensor:
    """The ten guided Euler steps over all rows at once, each from `noise` [frames, 80] -> mel
    float32 [rows, 2n, 80].
    """
    rows, frames = batch.mel.shape[:2]
    inputs = Solver.inputs(mu_of(network, batch, streaming=streaming), network.speaker(batch.speaker), shown(batch))
    mask = mask_of(frames, batch.mel.device, streaming=streaming)
    x = noise[None, :frames].expand(rows, -1, -1)
    for at in range(EULER_STEPS):
        x = solver.step(at, x, inputs, CachedPass.whole(ROWS * rows), mask)
    return x


class HeldOut:
    """The same pieces at every measurement, each utterance alone and behind a prompt of its
    voice.
    """

    def __init__(self, corpus: Corpus, draws: RandomPieces, members: list[int], rng: np.random.Generator) -> None:
        self._corpus = corpus
        self._pieces = {}
        for name, prompted in (("", False), ("_prompt", True)):
            pieces = [draws.served(member, prompted=prompted) for member in members]
            groups = by_length(range(len(pieces)), [piece.length for piece in pieces], _TOKENS, rng)
            self._pieces[name] = [equally_long([pieces[at] for at in group], rng) for group in groups]
        longest = max(piece.length for groups in self._pieces.values() for group in groups for piece in group)
        generator = torch.Generator().manual_seed(0)
        self._noise = torch.randn(2 * longest, MEL_BINS, generator=generator).to(corpus.mel.device)

    @torch.no_grad()
    def measure(self, network: UnetNetwork, config: UnetConfig, *, kinds: Sequence[str] = KINDS) -> dict[str, float]:
        """mel_l1, of frames behind the prompt: with full attention and under streaming masks, alone
        and behind a prompt.

        motion: mean change from frame to frame, as a share of the truth's; below one the mel is too
        smooth. held_loss, held_mu_l1: the training's terms, with the same noise each time.
        """
        solver = Solver(network.estimator, config.guidance, self._corpus.mel.device)
        noise = config.temperature * self._noise
        by_kind: dict[str, float] = {}
        for kind in kinds:
            groups = self._pieces["_prompt" if kind.startswith("_prompt") else ""]
            errors, moves, true_moves = [], [], []
            for batch in map(self._corpus.gather, groups):
                mels = solve(network, solver, batch, noise, streaming=kind.endswith("_streaming"))
                counted = (torch.arange(mels.shape[1], device=mels.device) >= batch.prompt[:, None])[
                    :, :, None
                ].expand_as(mels)
                errors.append((mels - batch.mel).abs()[counted])
                moves.append(mels.diff(dim=1)[counted[:, 1:]].abs())
                true_moves.append(batch.mel.diff(dim=1)[counted[:, 1:]].abs())
            by_kind[f"mel_l1{kind}"] = float(torch.cat(errors).mean())
            by_kind[f"motion{kind}"] = float(torch.cat(moves).mean() / torch.cat(true_moves).mean())
        generator = torch.Generator(self._corpus.mel.device).manual_seed(0)
        terms = [self._losses(network, batch, generator) for batch in map(self._corpus.gather, self._pieces[""])]
        by_kind["held_loss"] = float(torch.stack([flow for flow, _ in terms]).mean())
        by_kind["held_mu_l1"] = float(torch.stack([coarse for _, coarse in terms]).mean())
        return by_kind

    def _losses(self, network: UnetNetwork, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chances = RandomDraws.drawn(batch.tokens.shape[0], batch.tokens.shape[1], generator)
        return losses(network, batch, chances, self._corpus.mean, streaming=False)
