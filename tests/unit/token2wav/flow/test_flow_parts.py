"""The parts of the flow against the compatibility specification; blocks off the grid and values
that are not finite are refused.
"""

import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.real_size import PUBLISHED_FLOW
from cosyserve.errors import InternalFault, ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow import solver
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.layers import Convolution, ProductConvolution
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import relative_positions
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig, read_flow_tensors
from tests.stacks.up_process import TINY, TINY3

BUNDLE, BUNDLE3 = ModelDirectory(TINY), ModelDirectory(TINY3)
CPU = torch.device("cpu")


def test_the_noise_is_the_published_one_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    noise = solver.noise_table()
    assert torch.equal(torch.get_rng_state(), before)
    found = [*noise[0, :4].tolist(), float(noise[79, -1])]
    assert found == pytest.approx([-1.12583983, -1.15236020, -0.25057858, -0.43387881, -0.08329441], abs=1e-8)


def test_other_noise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver.torch, "randn", lambda *shape, generator: torch.zeros(shape))
    with pytest.raises(ModelError, match="noise table has sha256"):
        solver.noise_table()


def test_half_precision_files_are_widened_and_the_encoder_stays_wide(tmp_path: Path) -> None:
    shutil.copy(BUNDLE.file("cosyvoice2.yaml"), tmp_path)
    tensors = torch.load(BUNDLE.file("flow.pt"), weights_only=True)
    torch.save({name: tensor.half() for name, tensor in tensors.items()}, tmp_path / "flow.pt")
    directory = ModelDirectory(tmp_path)
    read = read_flow_tensors(directory, UnetConfig.read(directory), CPU, torch.bfloat16)
    assert {tensor.dtype for name, tensor in read.items() if name.startswith("decoder.")} == {torch.bfloat16}
    assert {tensor.dtype for name, tensor in read.items() if not name.startswith("decoder.")} == {torch.float32}
    torch.testing.assert_close(
        read["encoder_proj.weight"], tensors["encoder_proj.weight"].half().float(), atol=0, rtol=0
    )


@pytest.mark.parametrize("bundle", [BUNDLE, BUNDLE3], ids=["unet", "dit"])
def test_a_narrow_estimator_stays_near_the_wide_one(bundle: ModelDirectory) -> None:
    voice, tokens = VoicePrompt(torch.arange(10), torch.zeros(20, 80), torch.ones(192)), torch.arange(15)
    mels = []
    for dtype in (torch.float32, torch.bfloat16):
        flow = load_flow(bundle, CPU, dtype)
        state = flow.start(voice)
        mels.append(flow.blocks([state], [torch.cat((voice.tokens, tokens))], [tokens[:0]])[0])
        kept = [block for past in (state.encoder, *state.steps) for pair in past.attentions for block in pair]
        assert sum(block.nbytes for block in kept) == 50 * flow.config.state_bytes_per_frame(dtype)
        assert mels[-1].dtype == torch.float32
    assert 0 < (mels[0] - mels[1]).abs().max() < 0.2


def test_the_published_sizes_cost_what_the_documentation_says() -> None:
    assert PUBLISHED_FLOW.state_bytes_per_frame() == 4_616_192
    assert PUBLISHED_FLOW.state_bytes_per_frame(torch.float16) == 2_322_432


def test_the_yaml_may_turn_the_starting_noise_down(tmp_path: Path) -> None:
    shutil.copytree(BUNDLE.path, tmp_path / "model")
    plain = load_flow(ModelDirectory(tmp_path / "model"), CPU)
    yaml = tmp_path / "model" / "cosyvoice2.yaml"
    yaml.write_text(yaml.read_text().replace("spk_emb_dim: 80\n", "spk_emb_dim: 80\n        temperature: 0.25\n"))
    turned_down = load_flow(ModelDirectory(tmp_path / "model"), CPU)
    assert torch.equal(plain.noise, solver.noise_table().T)
    assert torch.equal(turned_down.noise, 0.25 * solver.noise_table().T)


@pytest.fixture(scope="module", params=[BUNDLE, BUNDLE3], ids=["unet", "dit"])
def flow(request: pytest.FixtureRequest) -> Flow:
    return load_flow(request.param, CPU)


def voice(mel: float = 0.0) -> VoicePrompt:
    return VoicePrompt(torch.arange(4), torch.full((8, 80), mel), torch.ones(192))


@pytest.mark.parametrize(("count", "ahead"), [(26, 3), (25, 4), (24, 1)])
def test_blocks_keep_to_the_grid(flow: Flow, count: int, ahead: int) -> None:
    with pytest.raises(InternalFault, match=f"a block of {count} tokens with {ahead} behind it"):
        flow.blocks([flow.start(voice())], [torch.arange(count)], [torch.arange(ahead)])


def test_nothing_follows_a_short_block(flow: Flow) -> None:
    state = flow.start(voice())
    flow.blocks([state], [torch.arange(7)], [torch.arange(0)])
    with pytest.raises(InternalFault, match="a block after the last"):
        flow.blocks([state], [torch.arange(25)], [torch.arange(3)])


def test_a_whole_pass_that_is_not_finite_is_a_fault(flow: Flow) -> None:
    with pytest.raises(InternalFault, match="not finite"):
        flow.prefix(voice(torch.inf), torch.arange(5), streaming=False, final=True)


def test_distances_are_picked_as_the_shift_picks_them() -> None:
    """Attention by gathering equals attention by the published shift of a [T, 2T - 1] matrix; 1030
    queries take several slices.
    """
    length = 1030
    config = UnetConfig.read(BUNDLE)
    network = UnetNetwork(config, read_flow_tensors(BUNDLE, config, CPU, torch.float32))
    attention, width, heads = network.encoder.layers[0]._attention, config.encoder_width, config.encoder_heads
    x = torch.randn(1, length, width, generator=torch.Generator().manual_seed(1))
    positions = relative_positions(length, length, width, CPU)

    def split(y: Tensor) -> Tensor:
        return y.view(1, length, heads, -1).transpose(1, 2)

    q, k, v = (split(y) for y in attention._in(x).chunk(3, dim=2))
    by_distance = (q + attention._distance_bias) @ attention._position(positions).view(
        -1, heads, width // heads
    ).permute(1, 2, 0)
    padded = F.pad(by_distance, (1, 0)).view(1, heads, 2 * length, length)
    by_distance = padded[:, :, 1:].reshape(1, heads, length, 2 * length - 1)[..., :length]
    score = ((q + attention._content_bias) @ k.transpose(2, 3) + by_distance) / (width // heads) ** 0.5
    want = attention._out((score.softmax(3) @ v).transpose(1, 2).reshape(1, length, width))
    torch.testing.assert_close(attention(x, CachedPass.whole(1), [positions], None), want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("taps", [1, 3, 5])
def test_a_convolution_as_one_product(taps: int) -> None:
    generator = torch.Generator().manual_seed(taps)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in ((7, 4, taps), (7,), (3, 20, 4)))
    plain = Convolution(weight, bias)
    made = ProductConvolution(plain)(x)
    assert made.shape == (3, 21 - taps, 7)
    torch.testing.assert_close(made, plain(x), atol=1e-5, rtol=0)
    with torch.inference_mode():
        assert torch.equal(ProductConvolution(plain)(x), made), "what is trained is what is served"
