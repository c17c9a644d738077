"""What is measured: a flow and a vocoder of the published sizes with random weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.generations.random_models import TINY3, dit_flow_tensors
from bench.generations.random_weights import voiced_tensors
from bench.parts.part import ResultsFile
from bench.real_size import PUBLISHED_DIT, PUBLISHED_FLOW, flow_tensors, vocoder_tensors
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import GENERATIONS
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow.dit.network import DitNetwork
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.network import FlowNetwork
from services.token2wav.flow.unet.network import UnetNetwork
from services.token2wav.gpu.device.launcher import Grid, Launcher
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import DIT, UNET, PagedNetwork
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.windowed_vocoder.networks import NETWORKS, Network
from services.token2wav.vocoder.causal.reference_noise import ReferenceNoise
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
    compile_only: fill the compiler's cache, time nothing; shard: of what; results: the figures of
    the part, in their file as soon as they are there.
    """

    generation: str = COSYVOICE2.name
    kept: str = EngineSettings.gpu_kv_precision
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

    def tensors(self) -> dict[str, Tensor]:
        """On the GPU."""
        return {name: tensor.to(DEVICE) for name, tensor in self.draw().items()}

    def readable(self, tensors: Mapping[str, Tensor]) -> Flow:
        """In float32."""
        return Flow(self.config, self.network(self.config, tensors), DEVICE)

    def paged_flow(self, tensors: Mapping[str, Tensor], **options: Any) -> PagedFlow[Any]:
        """options: of `PagedFlow`."""
        kept = "operands" if options.get("dtype") == torch.float32 else RUN.kept
        return PagedFlow(self.paged, self.config, tensors, kept=KEPT_NUMBERS[kept], **options)

    @property
    def page_bytes(self) -> int:
        """Size of a page, of operands in bfloat16."""
        operands = torch.bfloat16
        return self.paged.layout(self.config, True, KEPT_NUMBERS[RUN.kept].ratio(operands)).elements * operands.itemsize


FLOWS = {
    COSYVOICE2.name: PublishedFlow(UNET, PUBLISHED_FLOW, UnetNetwork, flow_tensors),
    COSYVOICE3.name: PublishedFlow(DIT, PUBLISHED_DIT, DitNetwork, lambda: dit_flow_tensors(PUBLISHED_DIT)),
}
"""By generation."""


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
    (generation,) = [each for each in GENERATIONS if each.name == RUN.generation]
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
    """A voice with a prompt, and tokens to speak; blocks as units over given pages."""

    def __init__(self, flow: Flow | None, prompt: int, tokens: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.voice = VoicePrompt(
            torch.randint(0, 6561, (prompt,), generator=generator),
            torch.randn(2 * prompt, 80, generator=generator),
            torch.randn(192, generator=generator),
        )
        self.ids = torch.cat((self.voice.tokens, torch.randint(0, 6561, (tokens,), generator=generator)))
        self.speaker = flow.speaker(self.voice) if flow is not None else torch.randn(80, device=DEVICE)
        self.blocks = -(-len(self.ids) // 25)

    def unit(self, at: int, pages: list[int]) -> Unit:
        tokens, ahead = self.ids[25 * at : 25 * at + 25], self.ids[25 * at + 25 : 25 * at + 28]
        mel = self.voice.mel[50 * at : 50 * at + 50]
        condition = F.pad(mel, (0, 0, 0, 50 - len(mel))).to(DEVICE) if len(mel) else None
        return Unit(pages[: at + 1], tokens, ahead if len(tokens) == 25 else ahead[:0], self.speaker, condition)

    def reference(self, flow: Flow) -> list[Tensor]:
        state, mels = flow.start(self.voice), []
        for at in range(self.blocks):
            unit = self.unit(at, list(range(at + 1)))
            (mel,) = flow.blocks([state], [unit.tokens], [unit.ahead])
            assert mel is not None, state.fault
            mels.append(mel.T)
        return mels


def apart(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Relative error, and mean absolute distance in log mel units."""
    return float((a - b).norm() / b.norm()), float((a - b).abs().mean())


def spread(batch: int, prefix: int) -> list[Unit]:
    """A batch whose streams have pages of their own, block `prefix` of each."""
    own = [list(range(1 + at * (prefix + 1), 1 + (at + 1) * (prefix + 1))) for at in range(batch)]
    one = RandomVoice(None, 0, 25 * prefix + 28, 5)
    return [one.unit(prefix, mine) for mine in own]


def filled(weights: dict[str, Tensor], pages: int, buckets: tuple[int, ...], **options: Any) -> PagedFlow[Any]:
    paged = published().paged_flow(weights, pages=pages, buckets=buckets, **options)
    # Bytes below 64 are small numbers in every type.
    for part in torch.split(paged.pool.view(torch.uint8), 1 << 29):
        part.random_(0, 64)
    return paged
