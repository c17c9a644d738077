"""How far the served solver's mel is from the truth, on utterances that no training has heard."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import EULER_STEPS, MEL_BINS
from recipes.demo_voice.flow.corpus import Batch, Corpus
from recipes.demo_voice.flow.objective import RandomDraws, losses, mask_of, mu_of, shown
from recipes.demo_voice.flow.pieces import RandomPieces, equally_long
from recipes.demo_voice.training.speech import by_length
from services.token2wav.flow.network import Network
from services.token2wav.flow.solver import ROWS, Solver
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.weights import FlowConfig

_TOKENS = 6_000
KINDS = ("", "_streaming", "_prompt", "_prompt_streaming")
"""Alone or behind a prompt, under full attention or streaming masks."""
BRIEF = ("", "_prompt_streaming")
"""The ends of that range."""


@torch.no_grad()
def solve(network: Network, solver: Solver, batch: Batch, noise: Tensor, *, streaming: bool) -> Tensor:
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
    def measure(self, network: Network, config: FlowConfig, *, kinds: Sequence[str] = KINDS) -> dict[str, float]:
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

    def _losses(self, network: Network, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chances = RandomDraws.of(len(batch.tokens), batch.tokens.shape[1], batch.mel.device).draw(generator)
        return losses(network, batch, chances, self._corpus.mean, streaming=False)
