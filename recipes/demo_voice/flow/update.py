"""One optimiser step of the flow as work for the device alone, recorded once per shape of batch and
replayed.

A step is some two thousand small kernels; started one by one they take several times as long as
they run.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from recipes.demo_voice.flow.corpus import Corpus, places_of
from recipes.demo_voice.flow.objective import RandomDraws, losses
from recipes.demo_voice.flow.pieces import Piece
from recipes.demo_voice.training.parameter_store import by_decay
from services.token2wav.flow.flow import Network
from services.token2wav.flow.weights import FlowConfig

WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
LARGEST_GRADIENT = 1.0


@dataclass
class Slot:
    """One shape of batch. places, chances: what a step reads, at addresses that stay. figures: what
    it writes, once recorded.
    """

    length: int
    streaming: bool
    places: Tensor
    chances: RandomDraws
    graph: "torch.cuda.CUDAGraph | None" = None
    figures: Tensor | None = None
    used: bool = False


class Update:
    """Parameters are changed where they are; `graphs` is ignored without CUDA and switched off when
    recording fails.
    """

    def __init__(
        self, config: FlowConfig, corpus: Corpus, parameters: Mapping[str, Tensor], seed: int, *, graphs: bool
    ) -> None:
        self._config, self._corpus, self.parameters = config, corpus, parameters
        device = corpus.mel.device
        self.graphs = graphs and device.type == "cuda"
        self._slots: dict[tuple[int, int, bool], Slot] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.graphs else None
        # Of our own: a recording that fails leaves the default generator unusable.
        self._generator = torch.Generator(device).manual_seed(seed)
        self.rate = torch.zeros((), device=device)
        self.mu_weight = torch.zeros((), device=device)
        self._optimiser = torch.optim.AdamW(
            by_decay(parameters, WEIGHT_DECAY), lr=self.rate, betas=BETAS, fused=True, capturable=device.type == "cuda"
        )

    def __call__(self, pieces: list[Piece], *, streaming: bool, rate: float, mu_weight: float) -> Tensor:
        """The velocity's error, that of mu and the gradient's norm before clipping, float32 [3];
        nothing waits for the device.

        pieces: all of one length. The result may be overwritten by the next step of its shape.
        """
        self.rate.fill_(rate)
        self.mu_weight.fill_(mu_weight)
        slot = self.slot(pieces, streaming=streaming)
        slot.chances.draw(self._generator)
        return self.run(slot)

    def slot(self, pieces: list[Piece], *, streaming: bool) -> Slot:
        """The pieces laid down where the step of their shape reads them."""
        length, device = pieces[0].length, self._corpus.mel.device
        key = (len(pieces), length, streaming)
        if key not in self._slots:
            places = torch.empty(len(pieces), 6, dtype=torch.int64, device=device)
            self._slots[key] = Slot(length, streaming, places, RandomDraws.of(len(pieces), length, device))
        slot = self._slots[key]
        slot.places.copy_(places_of(pieces, device), non_blocking=True)
        return slot

    def run(self, slot: Slot) -> Tensor:
        """A step from what lies in the slot. The first of a shape runs as it is, which readies all
        it needs; the second is recorded.
        """
        if self.graphs and slot.used and slot.graph is None:
            self._record(slot)
        slot.used = True
        if slot.graph is None or slot.figures is None:
            return self.run_plain(slot)
        slot.graph.replay()
        return slot.figures

    def state_dict(self) -> dict[str, Any]:
        """Of the optimiser."""
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`; recordings know the old tensors by address and are forgotten."""
        self._slots.clear()
        self._optimiser.load_state_dict(state)
        for group in self._optimiser.param_groups:
            group |= {"lr": self.rate, "capturable": self.rate.device.type == "cuda"}

    def run_plain(self, slot: Slot) -> Tensor:
        """The same, each kernel launched by itself."""
        batch = self._corpus.at(slot.places, slot.length)
        batch = replace(batch, tokens=slot.chances.corrupted(batch.tokens, self._corpus.count))
        network = Network(self._config, self.parameters)
        flow, coarse = losses(network, batch, slot.chances, self._corpus.mean, streaming=slot.streaming)
        self._optimiser.zero_grad(set_to_none=True)
        (flow + self.mu_weight * coarse).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), LARGEST_GRADIENT)
        self._optimiser.step()
        return torch.stack((flow.detach(), coarse.detach(), norm.detach()))

    def _record(self, slot: Slot) -> None:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._optimiser.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                figures = self.run_plain(slot)
        except RuntimeError as error:
            self.graphs = False
            torch.cuda.set_stream(stream)
            with suppress(RuntimeError):  # what the failed recording left pending
                torch.cuda.synchronize()
            tqdm.write(f"steps are not recorded, each kernel is launched by itself: {error.__context__ or error}")
        else:
            slot.graph, slot.figures = graph, figures
        # Gradients lie in the recordings' common memory, which the next recording may use.
        self._optimiser.zero_grad(set_to_none=True)
