"""The published CosyVoice2-0.5B checkpoints: every tensor name and shape that our loaders ask for
is theirs, and none is missing.

`published_shapes.json` lists names and shapes of the three published files (no weights).
"""

import json
import math
import re
from pathlib import Path

import pytest

from bench.generations.step_audio2 import PUBLISHED_STEP_DIT
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import expected_tensors as llm_tensors
from services.llm.generation.config import read_config as read_llm_config
from services.token2wav.flow.step_dit import weights as step_weights
from services.token2wav.flow.unet import weights as flow_weights
from services.token2wav.vocoder import weights as vocoder_weights

GOLDEN = Path(__file__).parent
PUBLISHED = json.loads((GOLDEN / "published_shapes.json").read_text())
QWEN = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}  # fmt: skip
# The published yaml differs from the small one in these numbers only.
YAML_NUMBERS = [
    (r"llm_input_size: 64", "llm_input_size: 896"),
    (r"llm_output_size: 64", "llm_output_size: 896"),
    (r"input_size: 48", "input_size: 512"),
    (r"output_size: 48", "output_size: 512"),
    (r"attention_heads: 4", "attention_heads: 8"),
    (r"linear_units: 128", "linear_units: 2048"),
    (r"num_blocks: 2", "num_blocks: 6"),
    (r"channels: \[32\]", "channels: [256]"),
    (r"attention_head_dim: 32", "attention_head_dim: 64"),
    (r"n_blocks: 2", "n_blocks: 4"),
    (r"num_mid_blocks: 2", "num_mid_blocks: 12"),
    (r"num_heads: 2", "num_heads: 8"),
    (r"base_channels: 32", "base_channels: 512"),
    (r"cond_channels: 32", "cond_channels: 512"),
]


@pytest.fixture
def published(tmp_path: Path) -> ModelDirectory:
    yaml = (GOLDEN / "tiny" / "cosyvoice2.yaml").read_text()
    for small, real in YAML_NUMBERS:
        yaml, count = re.subn(rf"(?<![\w]){small}(?!\d)", real, yaml)
        assert count, small
    (tmp_path / "cosyvoice2.yaml").write_text(yaml)
    config = json.loads((GOLDEN / "tiny" / "CosyVoice-BlankEN" / "config.json").read_text()) | QWEN
    (tmp_path / "CosyVoice-BlankEN").mkdir()
    (tmp_path / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(config))
    return ModelDirectory(tmp_path)


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    return {key: tuple(shape) for key, shape in PUBLISHED[name].items()}


def test_llm(published: ModelDirectory) -> None:
    expected = shapes("llm.pt")
    del expected["llm.model.lm_head.weight"]  # the tied copy, which the loader accepts and drops
    assert llm_tensors(read_llm_config(published)) == expected


def test_flow(published: ModelDirectory) -> None:
    assert flow_weights.expected_tensors(flow_weights.UnetConfig.read(published)) == shapes("flow.pt")


def test_vocoder(published: ModelDirectory) -> None:
    assert vocoder_weights.expected_tensors(vocoder_weights.read_config(published)) == shapes("hift.pt")


def test_step_audio2_with_the_published_sizes_has_the_published_count() -> None:
    """Of tensors and of numbers; all outside the estimator are CosyVoice2's. The vocoder's are
    CosyVoice2's too.
    """
    shapes = step_weights.expected_tensors(PUBLISHED_STEP_DIT)
    assert (len(shapes), sum(math.prod(shape) for shape in shapes.values())) == (605, 155_802_352)
    front = {name: list(shape) for name, shape in shapes.items() if not name.startswith("decoder.")}
    assert front == {name: shape for name, shape in PUBLISHED["flow.pt"].items() if not name.startswith("decoder.")}
