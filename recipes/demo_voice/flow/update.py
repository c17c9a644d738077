"""One optimiser step of the flow as work for the device alone, recorded once per shape of batch and
replayed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from recipes.demo_voice.flow.corpus import Corpus, places_of
from recipes.demo_voice.flow.objective import RandomDraws, losses
from recipes.demo_voice.flow.pieces import Piece
from recipes.demo_voice.training.parameter_store import by_decay
from recipes.demo_voice.training.recording import RecordingFailed, Replayed
from services.token2wav.flow.network import Network
from services.token2wav.flow.weights import FlowConfig

WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
LARGEST_GRADIENT = 1.0
WARM_UPS = 1
"""Steps of a shape before it is recorded: the first readies all it needs."""


class Shape(NamedTuple):
    """What decides which work a step is."""

    rows: int
    length: int
    streaming: bool


class Update:
    """Parameters are changed where they are; `graphs` is ignored without CUDA. When recording
    fails, each kernel is launched by itself from then on.
    """

    def __init__(
        self, config: FlowConfig, corpus: Corpus, parameters: Mapping[str, Tensor], seed: int, *, graphs: bool
    ) -> None:
        self._config, self._corpus, self.parameters = config, corpus, parameters
        device = corpus.mel.device
        on_gpu = device.type == "cuda"
        self.replayed = Replayed(self.plain, WARM_UPS) if graphs and on_gpu else None
        # Of our own: a recording that fails leaves the default generator unusable.
        self._generator = torch.Generator(device).manual_seed(seed)
        self.rate = torch.zeros((), device=device)
        self.mu_weight = torch.zeros((), device=device)
        self._optimiser = torch.optim.AdamW(
            by_decay(parameters, WEIGHT_DECAY), lr=self.rate, betas=BETAS, fused=True, capturable=on_gpu
        )

    def __call__(self, pieces: list[Piece], *, streaming: bool, rate: float, mu_weight: float) -> Tensor:
        """The velocity's error, that of mu and the gradient's norm before clipping, float32 [3];
        nothing waits for the device.

        pieces: all of one length.
        """
        self.rate.fill_(rate)
        self.mu_weight.fill_(mu_weight)
        shape, device = Shape(len(pieces), pieces[0].length, streaming), self._corpus.mel.device
        chances = RandomDraws.drawn(shape.rows, shape.length, self._generator)
        inputs = (places_of(pieces, device).to(device, non_blocking=True), chances.noise, chances.rolls)
        if self.replayed:
            try:
                return self.replayed(shape, inputs)
            except RecordingFailed as failure:
                self.replayed = None
                tqdm.write(f"steps are not recorded, each kernel is launched by itself: {failure}")
        return self.plain(shape, inputs)

    def state_dict(self) -> dict[str, Any]:
        """Of the optimiser."""
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        if self.replayed:
            self.replayed.forget()
        self._optimiser.load_state_dict(state)
        for group in self._optimiser.param_groups:
            group |= {"lr": self.rate, "capturable": self.rate.device.type == "cuda"}

    def plain(self, shape: Shape, inputs: Sequence[Tensor]) -> Tensor:
        """A step, each kernel launched by itself. inputs: what `places_of` gives, then the tensors
        of `RandomDraws`.
        """
        places, noise, rolls = inputs
        chances, batch = RandomDraws(noise, rolls), self._corpus.at(places, shape.length)
        batch = replace(batch, tokens=chances.corrupted(batch.tokens, self._corpus.count))
        network = Network(self._config, self.parameters)
        flow, coarse = losses(network, batch, chances, self._corpus.mean, streaming=shape.streaming)
        self._optimiser.zero_grad(set_to_none=True)
        (flow + self.mu_weight * coarse).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), LARGEST_GRADIENT)
        self._optimiser.step()
        return torch.stack((flow.detach(), coarse.detach(), norm.detach()))
