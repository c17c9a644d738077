"""What is measured: a flow and a vocoder of the published sizes with random weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.generations.random_models import TINY3, dit_flow_tensors
from bench.generations.random_weights import voiced_tensors
from bench.generations.step_audio2 import PUBLISHED_STEP_DIT, step_flow_tensors
from bench.parts.part import ResultsFile
from bench.real_size import PUBLISHED_DIT, PUBLISHED_FLOW, flow_tensors, vocoder_tensors
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import GENERATIONS
from cosyserve.generations.separate_decoder import STEP_AUDIO2
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow.dit.estimator import DitNetwork
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.network import FlowNetwork
from services.token2wav.flow.past import PROMPT_AND_NEWEST, WHOLE_PAST, Past
from services.token2wav.flow.step_dit.estimator import StepDitNetwork
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.gpu.device.launcher import Grid, Launcher
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import DIT, STEP_DIT, UNET, PagedNetwork, PageLayout
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.stream_units import StreamUnits
from services.token2wav.gpu.windowed_vocoder.networks import NETWORKS, Network
from services.token2wav.vocoder.causal.source import ReferenceNoise
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.vocoder.weights import VocoderConfig, fused
from services.token2wav.vocoder.weights import expected_tensors as expected_vocoder_tensors

TINY = TINY3.parent / "tiny"
"""The reduced models have the kernels of the published ones."""
DEVICE = torch.device("cuda")


@dataclass
class Run:
    """Options of this process. generation: whose model; kept: type of keys and values in pages;
    clusters: whether thread-block clusters compute small batches where they can; compile_only: fill
    the compiler's cache, time nothing; shard: of what; results: the figures of the part, in their
    file as soon as they are there.
    """

    generation: str = COSYVOICE2.name
    kept: str = EngineSettings.gpu_kv_precision
    clusters: bool = True
    compile_only: bool = False
    shard: tuple[int, ...] = ()
    results: ResultsFile = field(default_factory=ResultsFile)


RUN = Run()


@dataclass(frozen=True)
class PublishedFlow:
    """A generation's flow: the paged network, layer sizes, the readable network, and how random
    weights are drawn.
    """

    paged: PagedNetwork[Any]
    config: Any
    network: Callable[[Any, Mapping[str, Tensor]], FlowNetwork]
    draw: Callable[[], dict[str, Tensor]]
    past: Past = WHOLE_PAST

    def tensors(self) -> dict[str, Tensor]:
        """On the GPU."""
        return {name: tensor.to(DEVICE) for name, tensor in self.draw().items()}

    def readable(self, tensors: Mapping[str, Tensor]) -> Flow:
        """In float32."""
        return Flow(self.config, self.network(self.config, tensors), DEVICE, self.past)

    @property
    def fronts(self) -> int:
        """See `PagedFlow.fronts`; not 0: a prompt is one block."""
        return self.paged.fronts(self._layout)

    def paged_flow(self, tensors: Mapping[str, Tensor], **options: Any) -> PagedFlow[Any]:
        """options: of `PagedFlow`."""
        kept = "operands" if options.get("dtype") == torch.float32 else RUN.kept
        options = {"clusters": RUN.clusters} | options
        return PagedFlow(self.paged, self.config, tensors, kept=KEPT_NUMBERS[kept], **options)

    @property
    def page_bytes(self) -> int:
        """Size of a page, of operands in bfloat16."""
        return self._layout.elements * torch.bfloat16.itemsize

    @property
    def _layout(self) -> PageLayout:
        return self.paged.layout(self.config, True, KEPT_NUMBERS[RUN.kept].ratio(torch.bfloat16))


FLOWS = {
    COSYVOICE2.name: PublishedFlow(UNET, PUBLISHED_FLOW, UnetNetwork, flow_tensors),
    COSYVOICE3.name: PublishedFlow(DIT, PUBLISHED_DIT, DitNetwork, lambda: dit_flow_tensors(PUBLISHED_DIT)),
    STEP_AUDIO2.name: PublishedFlow(STEP_DIT, PUBLISHED_STEP_DIT, StepDitNetwork, step_flow_tensors, PROMPT_AND_NEWEST),
}
"""By generation or decoder."""


def published() -> PublishedFlow:
    """Of this run's generation."""
    return FLOWS[RUN.generation]


class CountingLauncher(Launcher):
    """Counts launches of kernels of our own."""

    launches: int = 0

    def __init__(self) -> None:
        super().__init__(chained=torch.cuda.get_device_capability(DEVICE) >= (9, 0))

    def __call__(self, kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> None:
        object.__setattr__(self, "launches", self.launches + 1)
        super().__call__(kernel, grid, *arguments, **constants)


def random_vocoder() -> tuple[Network, VocoderConfig, dict[str, Tensor]]:
    """The vocoder of `bench.real_size` of the published sizes, weight norm fused."""
    name = STEP_AUDIO2.generation.name if RUN.generation == STEP_AUDIO2.name else RUN.generation
    (generation,) = [each for each in GENERATIONS if each.name == name]
    network = NETWORKS[generation.vocoder_network]
    config = network.read_config(ModelDirectory(TINY if generation is COSYVOICE2 else TINY3))
    config = replace(config, base_channels=512, f0_channels=512)
    tensors = vocoder_tensors() if generation is COSYVOICE2 else voiced_tensors(expected_vocoder_tensors(config))
    return network, config, fused(tensors)


def readable_vocoder(config: VocoderConfig, weights: dict[str, Tensor]) -> Vocoder:
    """The same vocoder on the GPU in torch."""
    if isinstance(config, CausalVocoderConfig):
        return CausalVocoder(config, weights, ReferenceNoise(ModelDirectory(TINY3), config), DEVICE)
    return HiftVocoder(config, weights, DEVICE)


class RandomVoice:
    """A voice with a prompt, and tokens to speak; blocks as units over given pages. front: the page
    that holds what lies in front of the estimator, where that is apart.
    """

    def __init__(self, flow: Flow | None, prompt: int, tokens: int, seed: int, front: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        voice = VoicePrompt(
            torch.randint(0, 6561, (prompt,), generator=generator),
            torch.randn(2 * prompt, 80, generator=generator),
            torch.randn(192, generator=generator),
        )
        ids = torch.cat((voice.tokens, torch.randint(0, 6561, (tokens,), generator=generator)))
        speaker = flow.speaker(voice) if flow is not None else torch.randn(80, device=DEVICE)
        self._set(voice, ids, speaker, front)

    @classmethod
    def of(cls, voice: VoicePrompt, ids: Tensor, speaker: Tensor, front: int) -> "RandomVoice":
        """A given one. ids: those of the prompt included; speaker: as of a unit."""
        one = cls.__new__(cls)
        one._set(voice, ids, speaker, front)
        return one

    def _set(self, voice: VoicePrompt, ids: Tensor, speaker: Tensor, front: int) -> None:
        self.voice, self.ids, self.speaker, self.front = voice, ids, speaker, front
        self.units = StreamUnits(len(voice.tokens), published().fronts > 0)
        self.blocks = self.units.count(len(ids))
        frames = 50 * -(-(len(voice.mel) + 2 * self.units.skipped) // 50)
        before = 2 * self.units.skipped
        padded = F.pad(voice.mel, (0, 0, before, frames - before - len(voice.mel)))
        self._conditions = padded.view(-1, 50, 80).to(DEVICE)

    @property
    def passes(self) -> list[list[int]]:
        """Units that have to be in one pass, or are alone in one."""
        prompt = list(range(self.units.of_prompt))
        return ([prompt] if prompt else []) + [[at] for at in range(len(prompt), self.blocks)]

    def unit(self, at: int, pages: list[int], front_pages: list[int] | None = None) -> Unit:
        span, (seen, own) = self.units.tokens(at, len(self.ids)), self.units.seen(at)
        complete = span.stop == self.units.end(at + 1)
        ahead = self.ids[self.units.lookahead(span.stop)] if complete else self.ids[:0]
        condition = self._conditions[at] if at < len(self._conditions) else None
        if front_pages is None and published().fronts:
            front_pages = [self.front * published().fronts + one for one in range(self.blocks)]
        return Unit(
            [pages[one] for one in seen],
            self.ids[span.start : span.stop],
            ahead,
            self.speaker,
            condition,
            own,
            None if front_pages is None else front_pages[: max(at + 1, self.units.of_prompt)],
            self.units.skipped,
        )

    def reference(self, flow: Flow) -> list[Tensor]:
        """The readable flow's mel, float32 [frames, 80] of each unit."""
        state, grid = flow.start(self.voice), self.units.grid
        mels: list[Tensor] = []
        for group in self.passes:
            spans = [self.units.tokens(at, len(self.ids)) for at in group]
            first, end = spans[0].start, spans[-1].stop
            complete = end == self.units.end(group[-1] + 1)
            ahead = self.ids[grid.lookahead(end)] if complete else self.ids[:0]
            (mel,) = flow.blocks([state], [self.ids[first:end]], [ahead])
            assert mel is not None, state.fault
            mels += torch.split(mel.T, [2 * len(span) for span in spans])
        return mels


def apart(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Relative error, and mean absolute distance in log mel units."""
    return float((a - b).norm() / b.norm()), float((a - b).abs().mean())


def spread(batch: int, prefix: int) -> list[Unit]:
    """A batch whose streams have pages of their own, block `prefix` of each; the first three of
    those before it are the prompt where that is one block.
    """
    own = [list(range(1 + at * (prefix + 1), 1 + (at + 1) * (prefix + 1))) for at in range(batch)]
    prompt = 25 * min(prefix, 3) if published().fronts else 0
    one, units = RandomVoice(None, prompt, 25 * prefix - prompt + 28, 5), []
    for at, mine in enumerate(own):
        one.front = 1 + batch * (prefix + 1) + at
        units.append(one.unit(prefix, mine))
    return units


def filled(weights: dict[str, Tensor], pages: int, buckets: tuple[int, ...], **options: Any) -> PagedFlow[Any]:
    paged = published().paged_flow(weights, pages=pages, buckets=buckets, **options)
    # Bytes below 64 are small numbers in every type.
    for part in torch.split(paged.pool.view(torch.uint8), 1 << 29):
        part.random_(0, 64)
    return paged
