"""Sizes of a CosyVoice3 model with random weights, as changes of the yaml of `tests/golden/tiny3`.

`published`: Fun-CosyVoice3-0.5B. `bundled`: what the bundled voice would be as CosyVoice3. Its
speech-token model, the channels of the look-ahead layer, the vocoder and the f0 predictor are as
wide as the bundled ones. A mel frame passes through 2,284,032 weights of this DiT in a step of the
solver and through 2,189,312 of the bundled U-Net, 4 % fewer; weights that only the time passes
through are computed once for all frames and are not among them.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Size:
    """backbone: `config.json` of the speech-token model. yaml: number by number, what stands there
    and what is to. prompt_tokens: of each voice.
    """

    backbone: dict[str, Any]
    yaml: tuple[tuple[str, str], ...]
    prompt_tokens: int


_LENGTHS = (r"mix_ratio: \[5, 15\]", "mix_ratio: [5, 15]\n    min_token_text_ratio: 0.6\n    max_token_text_ratio: 4")
"""The text ids of the directory are bytes, of which a second of speech has as many as phonemes."""
PUBLISHED = Size(
    backbone={
        "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    },
    yaml=(
        _LENGTHS,
        (r"llm_input_size: 48", "llm_input_size: 896"),
        (r"llm_output_size: 48", "llm_output_size: 896"),
        (r"channels: 48", "channels: 1024"),
        (r"dim: 48", "dim: 1024"),
        (r"depth: 3", "depth: 22"),
        (r"heads: 3", "heads: 16"),
        (r"dim_head: 16", "dim_head: 64"),
        (r"base_channels: 32", "base_channels: 512"),
        (r"cond_channels: 32", "cond_channels: 512"),
    ),
    prompt_tokens=87,
)  # fmt: skip
BUNDLED = Size(
    backbone={
        "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 256, "intermediate_size": 576,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 576,
        "rope_theta": 1e4, "rms_norm_eps": 1e-6,
    },
    yaml=(
        _LENGTHS,
        (r"llm_input_size: 48", "llm_input_size: 256"),
        (r"llm_output_size: 48", "llm_output_size: 256"),
        (r"channels: 48", "channels: 192"),
        (r"dim: 48", "dim: 192"),
        (r"depth: 3", "depth: 7"),
        (r"heads: 3", "heads: 6"),
        (r"dim_head: 16", "dim_head: 32"),
        (r"base_channels: 32", "base_channels: 192"),
        (r"cond_channels: 32", "cond_channels: 128"),
    ),
    prompt_tokens=61,
)  # fmt: skip
SIZES = {"published": PUBLISHED, "bundled": BUNDLED}


def resized(yaml: Path, numbers: tuple[tuple[str, str], ...]) -> str:
    """The text of the yaml with these numbers. Raises ValueError for one that does not stand
    there.
    """
    text = yaml.read_text(encoding="utf-8")
    for found, wanted in numbers:
        text, count = re.subn(rf"(?<!\w){found}(?![\d.])", wanted, text)
        if not count:
            raise ValueError(f"{yaml} has no {found}")
    return text
