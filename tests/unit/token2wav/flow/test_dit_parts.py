"""The parts of CosyVoice3's flow against the compatibility specification, and what its files are
refused for.
"""

import json
import math
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import EULER_STEPS, FEWEST_EULER_STEPS
from services.token2wav.flow import loading
from services.token2wav.flow.dit.estimator import DitEstimator, DitNetwork
from services.token2wav.flow.dit.weights import DitConfig, expected_tensors, read_flow_tensors
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.solver import ROWS, euler_schedule
from services.token2wav.flow.stream_cache import CachedPass
from tests.stacks.up_process import TINY3

BUNDLE, CPU = ModelDirectory(TINY3), torch.device("cpu")
CONFIG = DitConfig.read(BUNDLE)
TENSORS = read_flow_tensors(BUNDLE, CONFIG, CPU, torch.float32)
NETWORK = DitNetwork(CONFIG, TENSORS)
FREQUENCIES = "decoder.estimator.rotary_embed.inv_freq"
QUERIES = "decoder.estimator.transformer_blocks.1.attn.to_q.weight"


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(BUNDLE, CPU)


def test_frames_are_counted_from_the_first_of_the_prompt_in_every_stream(flow: Flow) -> None:
    states = [flow.start(VoicePrompt(torch.arange(20), torch.zeros(40, 80), torch.ones(192))) for _ in range(2)]
    flow.blocks(states[1:], [torch.arange(25)], [torch.arange(3)])
    cache = CachedPass([state.steps[0] for state in states], ROWS)
    places = NETWORK.estimator.rotation(50, cache).angles[:, :, 0]
    assert places.shape == (2 * ROWS, 50)
    assert [row[0].item() for row in places] == [0, 0, 50, 50]
    assert torch.equal(places[2], torch.arange(50.0, 100.0))


@pytest.mark.parametrize("steps", range(FEWEST_EULER_STEPS, EULER_STEPS + 1))
def test_what_is_computed_once_is_what_each_step_would_compute(flow: Flow, steps: int) -> None:
    inputs, estimator = drawn(ROWS, 30, 320), flow.estimator
    for (times, dt), (t, want_dt) in zip(flow._solver._schedules[steps], euler_schedule(steps), strict=True):
        slow = estimator.velocity(
            inputs, estimator.times(estimator.time_embedding(torch.tensor([t]))), CachedPass.whole(ROWS)
        )
        assert torch.equal(estimator.velocity(inputs, times, CachedPass.whole(ROWS)), slow)
        assert dt == want_dt


def test_the_weights_of_times_are_free_and_the_mel_stays(flow: Flow) -> None:
    served, prompt = load_flow(BUNDLE, CPU), VoicePrompt(torch.arange(4), drawn(8, 80), drawn(192))
    estimator = served.estimator
    assert isinstance(estimator, DitEstimator)
    held = weakref.ref(estimator.blocks[0]._modulation.weight)
    estimator.forget_times()
    assert held() is None
    made, want = (each.prefix(prompt, torch.arange(30), streaming=True, final=True) for each in (served, flow))
    assert torch.equal(made, want)


def test_a_token_changes_mu_from_three_tokens_before_it_to_two_behind() -> None:
    ids = torch.arange(40)[None]
    other = ids.clone()
    other[0, 20] = 999
    nothing = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.bool)
    mus = [NETWORK.mu(some, *nothing, [0], CachedPass.whole(1)) for some in (ids, other)]
    changed = (mus[0] != mus[1]).any(dim=2)[0].nonzero().flatten().tolist()
    assert changed == list(range(2 * 17, 2 * 23))


@pytest.mark.parametrize("steps", [EULER_STEPS, FEWEST_EULER_STEPS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_grows_by_what_admission_counts_for_each_frame(dtype: torch.dtype, steps: int) -> None:
    """Admission counts for ten steps. What does not grow: 30 frames in front of each position
    convolution, two tokens in front of the look-ahead layer's second one, speaker and prompt.
    """
    flow = load_flow(BUNDLE, CPU, dtype)
    voice, ids = VoicePrompt(torch.arange(10), torch.zeros(20, 80), torch.ones(192)), torch.arange(50)
    state = flow.start(voice, steps)
    fixed = steps * ROWS * 2 * 30 * 48 * dtype.itemsize + 4 * (2 * 48 + 80 + 20 * 80)
    for first, frames in ((0, 50), (25, 100)):
        flow.blocks([state], [ids[first : first + 25]], [ids[first + 25 : first + 28]])
        grown = frames * CONFIG.state_bytes_per_frame(dtype) * steps // EULER_STEPS
        assert state.bytes == fixed + grown


PUBLISHED = replace(CONFIG, lookahead_channels=1024, width=1024, depth=22, heads=16, head_width=64, feed_forward=2048)


def test_the_published_sizes_cost_what_the_documentation_says() -> None:
    assert PUBLISHED.state_bytes_per_frame() == 3_604_480
    assert PUBLISHED.state_bytes_per_frame(torch.float16) == 2 * 901_120


def test_every_tensor_of_the_published_flow_is_asked_for() -> None:
    published = json.loads((TINY3.parent / "published_shapes_cosyvoice3.json").read_text())["flow.pt"]
    assert expected_tensors(PUBLISHED) == {name: tuple(shape) for name, shape in published.items()}


def test_the_published_yaml_gives_those_sizes(tmp_path: Path) -> None:
    """The published yaml differs from the small one in these numbers only."""
    yaml = (TINY3 / "cosyvoice3.yaml").read_text()
    for small, real in (
        ("channels: 48", "channels: 1024"), ("            dim: 48", "            dim: 1024"), ("depth: 3", "depth: 22"),
        ("heads: 3", "heads: 16"), ("dim_head: 16", "dim_head: 64"),
    ):  # fmt: skip
        assert small in yaml
        yaml = yaml.replace(small, real)
    (tmp_path / "cosyvoice3.yaml").write_text(yaml)
    assert DitConfig.read(ModelDirectory(tmp_path)) == PUBLISHED


def test_rotary_frequencies_stay_wide() -> None:
    read = read_flow_tensors(BUNDLE, CONFIG, CPU, torch.bfloat16)
    kinds = {name: tensor.dtype for name, tensor in read.items() if name.startswith("decoder.")}
    assert kinds.pop(FREQUENCIES) == torch.float32
    assert set(kinds.values()) == {torch.bfloat16}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name in ("cosyvoice3.yaml", "flow.pt"):
        shutil.copy(TINY3 / name, tmp_path)
    return tmp_path


def refused(model: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_flow(ModelDirectory(model), CPU)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tensors: tensors.pop(QUERIES), f"missing tensor {QUERIES} [48, 48]"),
        (lambda tensors: tensors.update({QUERIES: torch.zeros(48, 47)}), f"tensor {QUERIES} has shape [48, 47]"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "extra tensor extra [1]"),
        (
            lambda tensors: tensors[FREQUENCIES].fill_(math.nan),
            f"tensor {FREQUENCIES} has values that are not finite",
        ),
    ],
)
def test_a_wrong_tensor_is_named(model: Path, change: Callable[[dict[str, Tensor]], object], complaint: str) -> None:
    tensors = torch.load(model / "flow.pt", weights_only=True)
    change(tensors)
    torch.save(tensors, model / "flow.pt")
    assert refused(model).startswith(f"{model / 'flow.pt'}: {complaint}")


@pytest.mark.parametrize(
    ("line", "other", "complaint"),
    [
        ("    input_size: 80", "    input_size: 512", "flow.input_size = 512; only 80 is implemented"),
        ("mu_dim: 80", "mu_dim: 81", "flow.decoder.estimator.mu_dim = 81; only 80 is implemented"),
        ("            dim: 48", "            dim: 40", "flow.decoder.estimator.dim = 40, expected a multiple of 16"),
        ("heads: 3", "heads: 4", "flow.decoder.estimator.dim 48 is not heads 4 times an even dim_head 16"),
        ("depth: 3", "depth: 0", "flow.decoder.estimator.depth = 0, expected a positive integer"),
        ("ff_mult: 2", "ff: 2", "the yaml has no key flow.decoder.estimator.ff_mult"),
        ("solver: 'euler'", "solver: 'heun'", "flow.decoder.cfm_params.content.solver = 'heun'; only 'euler'"),
        ("vocab_size: 6561", "vocab_size: 4096", "flow.vocab_size = 4096; only 6561 is implemented"),
    ],
)
def test_a_yaml_of_another_model_is_refused(model: Path, line: str, other: str, complaint: str) -> None:
    path = model / "cosyvoice3.yaml"
    assert line in path.read_text()
    path.write_text(path.read_text().replace(line, other))
    assert complaint in refused(model)


def test_a_network_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(COSYVOICE3, flow_network="made-up")
    monkeypatch.setattr(loading, "token2wav_networks", lambda directory: unknown)
    with pytest.raises(
        ModelError, match="flow's network 'made-up' is not known; there are conformer-dit, conformer-unet, dit"
    ):
        load_flow(BUNDLE, CPU)


def test_a_third_generation_adds_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up network is a DiT whose mu is turned down."""

    class Quieter(DitNetwork):
        def mu(self, *given: object, **named: object) -> Tensor:
            return 0.5 * super().mu(*given, **named)  # type: ignore[arg-type]

    files = loading.NetworkFiles(DitConfig.read, read_flow_tensors, Quieter)
    monkeypatch.setattr(loading, "token2wav_networks", lambda directory: replace(COSYVOICE3, flow_network="made-up"))
    monkeypatch.setattr(loading, "NETWORKS", {**loading.NETWORKS, "made-up": files})
    voice, ids = VoicePrompt(torch.arange(0), torch.zeros(0, 80), torch.ones(192)), torch.arange(30)
    mel = load_flow(BUNDLE, CPU).prefix(voice, ids, streaming=True, final=True)
    assert mel.shape == (80, 60)
    monkeypatch.undo()
    assert (load_flow(BUNDLE, CPU).prefix(voice, ids, streaming=True, final=True) - mel).abs().max() > 1e-2
