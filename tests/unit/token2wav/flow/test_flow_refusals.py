"""What the flow refuses, and the error messages: model directories at the start, values before any
work.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest, ModelError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow

TINY = Path(__file__).parents[3] / "golden" / "tiny"
CPU = torch.device("cpu")
NAME = "decoder.estimator.mid_blocks.1.1.0.attn1.to_q.weight"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "cosyvoice2.yaml").write_text((TINY / "cosyvoice2.yaml").read_text())
    (tmp_path / "flow.pt").write_bytes((TINY / "flow.pt").read_bytes())
    return tmp_path


def refused(directory: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_flow(ModelDirectory(directory), CPU)
    return str(caught.value)


def _without(tensors: dict[str, Tensor]) -> None:
    del tensors[NAME]


def _with_one_more(tensors: dict[str, Tensor]) -> None:
    tensors["decoder.rand_noise"] = torch.zeros(1, 80, 4)


def _misshapen(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = torch.zeros(64, 31)


def _integral(tensors: dict[str, Tensor]) -> None:
    tensors[NAME] = torch.zeros(64, 32, dtype=torch.int8)


def _not_finite(tensors: dict[str, Tensor]) -> None:
    tensors[NAME][3, 3] = torch.inf


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_without, f"missing tensor {NAME} [64, 32]"),
        (_with_one_more, "extra tensor decoder.rand_noise [1, 80, 4]"),
        (_misshapen, f"tensor {NAME} has shape [64, 31], expected [64, 32]"),
        (_integral, f"tensor {NAME} is torch.int8, expected a floating-point type"),
        (_not_finite, f"tensor {NAME} has values that are not finite"),
    ],
)
def test_a_wrong_tensor_is_named(directory: Path, change: Callable[[dict[str, Tensor]], None], complaint: str) -> None:
    tensors = torch.load(directory / "flow.pt", weights_only=True)
    change(tensors)
    torch.save(tensors, directory / "flow.pt")
    assert refused(directory) == f"{directory / 'flow.pt'}: {complaint}"


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('ran')",)


@pytest.mark.parametrize("content", ["hostile", "garbage", "truncated", "empty"])
def test_a_file_that_holds_no_tensors_is_refused_without_running_it(directory: Path, content: str) -> None:
    path = directory / "flow.pt"
    if content == "hostile":
        torch.save({"input_embedding.weight": _Hostile()}, path)
    else:
        path.write_bytes(
            {"garbage": b"\x80\x04no pickle", "truncated": path.read_bytes()[:100_000], "empty": b""}[content]
        )
    assert refused(directory).startswith(f"{path}: not a file of tensors")


@pytest.mark.parametrize(("content", "what"), [([1], "holds a list"), ({"a": 1}, "entry 'a' is a int")])
def test_other_content_is_named(directory: Path, content: object, what: str) -> None:
    torch.save(content, directory / "flow.pt")
    assert what in refused(directory)


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / "flow.pt").unlink()
    assert refused(directory).startswith(f"{directory / 'flow.pt'}: missing")


@pytest.mark.parametrize(
    ("line", "other", "complaint"),
    [
        (
            "channels: [32]",
            "channels: [32, 32]",
            "flow.decoder.estimator.channels = [32, 32]; only one level is implemented",
        ),
        ("n_blocks: 2", "n_blocks: 0", "flow.decoder.estimator.n_blocks = 0, expected a positive integer"),
        (
            "solver: 'euler'",
            "solver: 'heun'",
            "flow.decoder.cfm_params.content.solver = 'heun'; only 'euler' is implemented",
        ),
        ("inference_cfg_rate: 0.7", "inference_cfg_rate: high", "inference_cfg_rate = 'high', expected a number"),
        (
            "attention_heads: 4",
            "attention_heads: 5",
            "flow.encoder.output_size 48 is no even multiple of flow.encoder.attention_heads 5",
        ),
        ("vocab_size: 6561", "vocab_size: 4096", "flow.vocab_size = 4096; only 6561 is implemented"),
        (
            "spk_embed_dim: !ref <spk_embed_dim>",
            "spk_embed_dim: 256",
            "flow.spk_embed_dim = 256; only 192 is implemented",
        ),
        (
            "spk_emb_dim: 80\n",
            "spk_emb_dim: 80\n        temperature: 1.5\n",
            "flow.decoder.temperature = 1.5, expected a number",
        ),
        ("linear_units: 128", "linear: 128", "the yaml has no key flow.encoder.linear_units"),
    ],
)
def test_a_yaml_of_another_model_is_refused(directory: Path, line: str, other: str, complaint: str) -> None:
    path = directory / "cosyvoice2.yaml"
    assert line in path.read_text()
    path.write_text(path.read_text().replace(line, other))
    assert complaint in refused(directory)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(ModelDirectory(TINY), CPU)


def voice(prompt: int = 4, frames: int = 8, width: int = 192) -> VoicePrompt:
    return VoicePrompt(torch.arange(prompt), torch.zeros(frames, 80), torch.ones(width))


@pytest.mark.parametrize(
    ("speaker", "tokens", "final", "complaint"),
    [
        (voice(), torch.tensor([0, 6561]), True, "speech token 1 is 6561, allowed are 0..6560"),
        (voice(), torch.tensor([-1]), True, "speech token 0 is -1, allowed are 0..6560"),
        (voice(), torch.arange(0), True, "speech tokens come as one row of at least one, not as [0]"),
        (voice(), torch.arange(3), False, "3 tokens and more to come; a call needs more than the 3 of its look-ahead"),
        (voice(), torch.zeros(7497, dtype=torch.long), True, "7501 speech tokens with the prompt's, allowed are 7500"),
        (
            voice(frames=7),
            torch.arange(5),
            True,
            "the prompt's mel is [7, 80], expected [8, 80] for its 4 tokens: 2 frames a token",
        ),
        (voice(width=80), torch.arange(5), True, "the speaker embedding is [80], expected [192]"),
    ],
)
def test_values_are_refused_before_any_work(
    flow: Flow, speaker: VoicePrompt, tokens: Tensor, final: bool, complaint: str
) -> None:
    before = flow.stats.euler_steps
    with pytest.raises(InvalidRequest) as caught:
        flow.prefix(speaker, tokens, streaming=True, final=final)
    assert caught.value.message.startswith(complaint)
    assert flow.stats.euler_steps == before


def test_a_block_behind_the_end_of_the_noise_is_refused(flow: Flow) -> None:
    state = flow.start(voice())
    state.position = 7500
    with pytest.raises(InvalidRequest, match="7501 speech tokens"):
        flow.blocks([state], [torch.arange(1)], [torch.arange(0)])


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
    broken = VoicePrompt(torch.arange(4), torch.full((8, 80), torch.inf), torch.ones(192))
    with pytest.raises(InternalFault, match="not finite"):
        flow.offline(broken, torch.arange(5))
