"""The windowed vocoder equals the readable one over the whole sentence, of both networks, in
Triton's interpreter: windows of both lengths, a first, a middle and a last one, two streams in one
batch, and operands in half precision.
"""

from dataclasses import replace
from importlib.util import find_spec

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.gpu.device.launcher import MANY, SOUND_TILES, Launcher, Tile, Tiles
from services.token2wav.gpu.windowed_vocoder.convolutions import Convolution
from services.token2wav.gpu.windowed_vocoder.networks import CAUSAL_HIFT, HIFT, NETWORKS, Network
from services.token2wav.gpu.windowed_vocoder.vocoder import RING_FRAMES, WindowedVocoder
from services.token2wav.gpu.windowed_vocoder.windows import Render, batches
from services.token2wav.vocoder.causal.source import ReferenceNoise
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.vocoder.weights import VocoderConfig, expected_tensors
from tests.stacks.up_process import TINY, TINY3

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
CPU = torch.device("cpu")
SEED, SENTENCE = 0xFEDCBA9876543210, 7
LENGTHS = (3, 24)


DIRECTORIES = {HIFT: ModelDirectory(TINY), CAUSAL_HIFT: ModelDirectory(TINY3)}
both_networks = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def small(network: Network) -> tuple[VocoderConfig, dict[str, Tensor]]:
    """Fewer and narrower layers than any model has: channels that fill no tile, blocks of two
    kernels.
    """
    config = replace(
        network.read_config(DIRECTORIES[network]), base_channels=24, f0_channels=24, resblock_kernel_sizes=(3, 5),
        resblock_dilation_sizes=((1, 3), (1, 2)), source_resblock_kernel_sizes=(3, 3, 5),
        source_resblock_dilation_sizes=((1, 2), (1, 2), (1, 3)),
    )  # fmt: skip
    generator, weights = torch.Generator().manual_seed(0), {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("original0"):
            continue
        drawn = torch.randn(shape, generator=generator)
        drawn *= (1.0 / torch.tensor(shape[1:]).prod().item()) ** 0.5 if len(shape) > 1 else 0.1
        weights[name.replace(".parametrizations.weight.original1", ".weight")] = (
            drawn.abs() + 0.5 if name.endswith("alpha") else drawn
        )
    weights["f0_predictor.classifier.bias"] = torch.tensor([200.0])
    return config, weights


def readable(config: VocoderConfig, weights: dict[str, Tensor]) -> Vocoder:
    if isinstance(config, CausalVocoderConfig):
        return CausalVocoder(config, weights, ReferenceNoise(ModelDirectory(TINY3), config), CPU)
    return HiftVocoder(config, weights, CPU)


def large_tiles(described: bool) -> Launcher:
    """The interpreter takes its time by the program. described: blocks are fetched by descriptors
    where that is possible.
    """
    kinds: Tiles = {
        kind: ((MANY, Tile(2048, 64, 32, 1, 1, described=described)),)
        for kind in SOUND_TILES
        if kind.startswith("sound")
    }
    return Launcher(False, kinds | {"pitch": ((MANY, Tile(64, 32, 32)),), "excitation": ((MANY, Tile(8192, 0)),)})


def streamed(made: WindowedVocoder, mels: list[Tensor], arrivals: list[int]) -> list[Tensor]:
    """Sentences of the same length [80, frames] each, frames as they arrive."""
    pieces: list[list[Tensor]] = [[] for _ in mels]
    slots, first, received = [2 + at for at in range(len(mels))], 0, 0
    for slot in slots:
        made.forget(slot)
    for have in arrivals:
        made.write(slots, [received] * len(mels), [mel.T[received:have] for mel in mels])
        received, end = have, have if have == arrivals[-1] else None
        while count := min(max(LENGTHS), (have if end else have - made.hold_back_frames) - first):
            frames = min(length for length in LENGTHS if length >= count)
            windows = [Render(slot, first, count, end, SEED + slot, SENTENCE) for slot in slots]
            sound = made.run(windows, frames)
            for at, own in enumerate(pieces):
                own.append(sound[at, windows[at].determined(made.late_samples)].clone())
            first += count
    return [torch.cat(own) for own in pieces]


@torch.inference_mode()
@pytest.mark.parametrize(("precision", "described", "apart"), [("ieee", False, 5e-6), ("float16", True, 5e-3)])
@both_networks
def test_windows_are_the_whole_sentence(network: Network, precision: str, described: bool, apart: float) -> None:
    config, weights = small(network)
    plain = readable(config, weights)
    made = WindowedVocoder(
        config, weights, CPU, slots=5, buckets=(2,), lengths=LENGTHS, precision=precision,
        launch=large_tiles(described), network=network,
    )  # fmt: skip
    arrivals = [made.hold_back_frames + 2, made.hold_back_frames + 10, made.hold_back_frames + 11]
    mels = list(torch.randn(2, 80, arrivals[-1], generator=torch.Generator().manual_seed(5)))
    for at, (found, mel) in enumerate(zip(streamed(made, mels, arrivals), mels, strict=True)):
        wanted = plain.offline(mel, SEED + 2 + at, SENTENCE)
        assert found.shape == wanted.shape
        assert float(wanted.abs().max()) > 0.05
        assert float((found - wanted).norm() / wanted.norm()) < apart


@torch.inference_mode()
@both_networks
def test_numbers_that_are_none_stay_in_their_window(network: Network) -> None:
    config, weights = small(network)
    made = WindowedVocoder(
        config, weights, CPU, slots=5, buckets=(2,), lengths=(3,), precision="float16", launch=large_tiles(True),
        network=network,
    )  # fmt: skip
    mel, frames = torch.randn(30, 80, generator=torch.Generator().manual_seed(5)), made.hold_back_frames + 3
    made.write([2, 3], [0, 0], [mel[:frames], mel[:frames]])
    in_batch = made.run([Render(2, 0, 3, None, SEED, SENTENCE), Render(3, 0, 3, None, SEED, SENTENCE)], 3)[0].clone()
    for slot in (2, 3):
        made.forget(slot)
    made.write([3], [0], [torch.full((frames, 80), float("nan"))])
    found = made.run([Render(2, 0, 3, None, SEED, SENTENCE), Render(3, 0, 3, None, SEED, SENTENCE)], 3)
    assert torch.equal(found[0], in_batch)
    assert not torch.isfinite(found[1, Render(3, 0, 3, None, SEED, SENTENCE).determined(made.late_samples)]).any()


def test_small_weights_lose_nothing_to_half_precision() -> None:
    weight = torch.randn(5, 7, 3) * torch.logspace(-9, 0, 5)[:, None, None]
    layer = Convolution([weight], [torch.zeros(5)], [1], [0], torch.float16)
    found = (layer.weight.float() * layer.scale[None, :, None])[:, :5, :7].permute(1, 2, 0)
    assert float(((found - weight).norm(dim=(1, 2)) / weight.norm(dim=(1, 2))).max()) < 5e-4


@pytest.mark.parametrize("frames", [1, 10, 50])
@both_networks
def test_a_shape_holds_what_its_layers_need(network: Network, frames: int) -> None:
    config = network.read_config(DIRECTORIES[network])
    shape, longest = network.shape(config, frames), network.shape(config, 50)
    assert longest.mel_frames + 10 <= RING_FRAMES
    assert (shape.frames_before, shape.pitched_before) == (longest.frames_before, longest.pitched_before)
    for rate, level in zip(config.upsample_rates, shape.levels, strict=True):
        assert level.raised <= level.merged.start
        assert level.raised + rate * (level.groups.stop - level.groups.start) >= level.merged.stop
        assert shape.spectrum.start <= level.heard
        assert level.excitation.start <= level.merged.start < level.merged.stop <= level.excitation.stop


def test_short_windows_go_by_themselves_where_that_is_less_work() -> None:
    buckets = (1, 2, 4, 8, 16, 32)
    assert batches([6], (10, 50), buckets) == [(10, [0])]
    assert batches([50, 6], (10, 50), buckets) == [(50, [0, 1])]
    assert batches([6] * 30 + [50] * 30, (10, 50), buckets) == [(10, list(range(30))), (50, list(range(30, 60)))]
    assert batches([50] * 40, (10, 50), buckets) == [(50, list(range(32))), (50, list(range(32, 40)))]
    assert batches([50] * 15 + [6], (10, 50), buckets) == [(50, list(range(16)))]
