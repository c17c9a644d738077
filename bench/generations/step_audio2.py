"""A directory of Step-Audio2's flow and vocoder with random weights of the published sizes, for the
tokens of a CosyVoice2 model.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bench.generations.random_weights import sound_tensors
from bench.generations.sizes import resized
from services.token2wav.flow.step_dit.weights import StepDitConfig, expected_tensors

TINY_STEP_AUDIO2 = Path(__file__).parents[2] / "tests" / "golden" / "tiny-stepaudio2"
PUBLISHED_STEP_DIT = StepDitConfig(
    vocabulary=6561, speaker=192, input_width=512, encoder_width=512, encoder_heads=8, encoder_feed_forward=2048,
    encoder_layers=6, encoder_upsampled_layers=4, guidance=0.7, width=512, depth=16, heads=8, head_width=64,
    feed_forward=2048,
)  # fmt: skip
_NUMBERS = (
    (r"input_size: 40", "input_size: 512"),
    (r"output_size: 40", "output_size: 512"),
    (r"num_blocks: 3", "num_blocks: 6"),
    (r"num_up_blocks: 2", "num_up_blocks: 4"),
    (r"attention_heads: 4", "attention_heads: 8"),
    (r"linear_units: 96", "linear_units: 2048"),
    (r"depth: 3", "depth: 16"),
    (r"num_heads: 3", "num_heads: 8"),
    (r"head_dim: 16", "head_dim: 64"),
    (r"hidden_size: 48", "hidden_size: 512"),
)
"""What turns the yaml of the reduced sizes into the published one."""


def step_flow_tensors() -> dict[str, Tensor]:
    """Of `flow.pt`."""
    return sound_tensors(expected_tensors(PUBLISHED_STEP_DIT), seed=1)


def write_step_audio2(target: Path, vocoder: Mapping[str, Tensor]) -> None:
    """`flow.yaml`, `flow.pt` and `hift.pt`, the last from `vocoder`."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "flow.yaml").write_text(resized(TINY_STEP_AUDIO2 / "flow.yaml", _NUMBERS), encoding="utf-8")
    torch.save(step_flow_tensors(), target / "flow.pt")
    torch.save(dict(vocoder), target / "hift.pt")
