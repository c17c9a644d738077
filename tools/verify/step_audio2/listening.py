"""A stream of Step-Audio2's flow whose calls are heard: what every call made, and what it kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import InternalFault, ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.past import Past, ReferenceCut
from services.token2wav.flow.step_dit.estimator import StepDitEstimator, StepDitNetwork
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from services.token2wav.inputs.chunking import Grid


def loaded(directory: Path) -> tuple[Flow, StepDitNetwork]:
    """The flow of a bundle, on the CPU, and its network. Raises ModelError for another network."""
    flow = load_flow(ModelDirectory(directory), torch.device("cpu"))
    if not isinstance(flow.network, StepDitNetwork):
        raise ModelError(f"{directory}: the flow's network is a {type(flow.network).__name__}, not a StepDitNetwork")
    return flow, flow.network


@dataclass(eq=False)
class Heard:
    """What one call of the flow made. encoded [1, frames, width], mu [1, frames, 80]; velocities of
    both rows [2, frames, 80], one for each Euler step; whole: the cache of each step before it is
    cut; mel [80, frames].
    """

    encoded: Tensor = field(default_factory=lambda: torch.zeros(0))
    mu: Tensor = field(default_factory=lambda: torch.zeros(0))
    velocities: list[Tensor] = field(default_factory=list)
    whole: list[StreamCache] = field(default_factory=list)
    encoder: StreamCache = field(default_factory=StreamCache)
    steps: tuple[StreamCache, ...] = ()
    mel: Tensor = field(default_factory=lambda: torch.zeros(0))


class ListeningFlow:
    """The flow of a bundle with the noise of the bundle, float32 [frames, 80]. `heard` is the call
    that runs, or the last one that did.
    """

    def __init__(self, flow: Flow, network: StepDitNetwork, noise: Tensor) -> None:
        self.heard = Heard()
        self.flow = Flow(flow.config, _Network(network, self), flow.device, flow.past)
        self.flow.noise = noise

    def whole(self, voice: VoicePrompt, tokens: Tensor) -> Heard:
        """The offline call; its mel is without the prompt."""
        self.heard = Heard()
        self.heard.mel = self.flow.prefix(voice, tokens, streaming=False, final=True)
        return self.heard

    def calls(self, voice: VoicePrompt, tokens: Tensor, ends: Sequence[int], past: Past) -> Iterator[Heard]:
        """The prompt's call, then those up to each of `ends`, in generated tokens."""
        state = self.flow.start(voice, past=past)
        ids, grid = torch.cat((voice.tokens, tokens)), Grid(len(voice.tokens), whole_prompt=True)
        for end in (grid.prompt, *(grid.prompt + end for end in ends)):
            yield self._call(state, ids[state.position : end], ids[grid.lookahead(end)])

    def _call(self, state: FlowState, tokens: Tensor, ahead: Tensor) -> Heard:
        self.heard = Heard()
        (mel,) = self.flow.blocks([state], [tokens], [ahead])
        if mel is None:
            raise state.fault or InternalFault(f"the flow made nothing behind token {state.position}")
        self.heard.mel, self.heard.encoder, self.heard.steps = mel, state.encoder, state.steps
        return self.heard


class ListeningCut(ReferenceCut):
    """The reference's cut, which notes what it was given. cuts: whether it cuts at all; if it does
    not, the noise goes on as well.
    """

    def __init__(self, flow: ListeningFlow, *, cuts: bool = True) -> None:
        self._flow, self._cuts = flow, cuts

    def first_noise(self, prompt: int, position: int) -> int:
        """See `Past`."""
        return super().first_noise(prompt, position) if self._cuts else 2 * position

    def kept(self, prompt: int, cache: StreamCache) -> StreamCache:
        """See `Past`."""
        self._flow.heard.whole.append(cache)
        return super().kept(prompt, cache) if self._cuts else cache


@dataclass(eq=False)
class _Network:
    """See `FlowNetwork`."""

    network: StepDitNetwork
    listener: ListeningFlow

    def __post_init__(self) -> None:
        self.estimator = _Estimator(self.network.estimator, self.listener)

    def speaker(self, embedding: Tensor) -> Tensor:
        return self.network.speaker(embedding)

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        heard = self.listener.heard
        heard.encoded = self.network.encoded(ids, ahead, known, before, cache, chunked=chunked)
        heard.mu = self.network.project(heard.encoded)
        return heard.mu


@dataclass(eq=False)
class _Estimator:
    """See `VelocityEstimator`."""

    estimator: StepDitEstimator
    listener: ListeningFlow

    @property
    def dtype(self) -> torch.dtype:
        return self.estimator.dtype

    def time_embedding(self, t: Tensor) -> Tensor:
        return self.estimator.time_embedding(t)

    def times(self, embedding: Tensor) -> list[Tensor]:
        return self.estimator.times(embedding)

    def forget_times(self) -> None:
        self.estimator.forget_times()

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        made = self.estimator.velocity(inputs, times, cache, mask)
        self.listener.heard.velocities.append(made)
        return made


def convolutions(caches: Sequence[StreamCache]) -> Tensor:
    """What the DiT's convolutions keep, as the reference stores it: [step, block, row, channels of
    both convolutions, 2].
    """
    return torch.stack([_pairs(cache.convolutions) for cache in caches])


def _pairs(tails: Sequence[Tensor]) -> Tensor:
    wide = [tail.transpose(1, 2) for tail in tails]
    return torch.stack([torch.cat(pair, dim=1) for pair in zip(wide[::2], wide[1::2], strict=True)])


def encoder_convolutions(cache: StreamCache) -> Tensor:
    """What the encoder's convolutions keep, side by side: [1, width, 2 + 4]."""
    return torch.cat([tail.transpose(1, 2) for tail in cache.convolutions], dim=2)


def keys_values(cache: StreamCache, attention: int) -> Tensor:
    """Of one attention of the DiT [row, head, frame, keys and values], the newest block first."""
    return torch.cat(tuple(torch.cat(cache.attentions[attention][::-1], dim=3)), dim=3)


def encoder_keys_values(cache: StreamCache) -> Tensor:
    """Of all attentions of the encoder [attention, 1, head, frame, keys and values], oldest first;
    those that count tokens are stored twice, one copy behind the other.
    """
    joined = [torch.cat(tuple(torch.cat(blocks, dim=3)), dim=3) for blocks in cache.attentions]
    frames = max(each.shape[2] for each in joined)
    return torch.stack([each.repeat(1, 1, frames // each.shape[2], 1) for each in joined])
