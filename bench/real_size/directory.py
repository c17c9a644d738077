"""A model directory of the published sizes with random weights."""

import json
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor

from bench.real_size import DEMO, PUBLISHED_LLM, flow_tensors, llm_tensors, vocoder_tensors

BACKBONE = {
    "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
}  # fmt: skip
YAML_NUMBERS = (
    (r"llm_input_size: 256", "llm_input_size: 896"),
    (r"llm_output_size: 256", "llm_output_size: 896"),
    (r"input_size: 96", "input_size: 512"),
    (r"output_size: 192", "output_size: 512"),
    (r"attention_heads: 4", "attention_heads: 8"),
    (r"linear_units: 384", "linear_units: 2048"),
    (r"num_blocks: 3", "num_blocks: 6"),
    (r"channels: \[128\]", "channels: [256]"),
    (r"attention_head_dim: 32", "attention_head_dim: 64"),
    (r"n_blocks: 1", "n_blocks: 4"),
    (r"num_mid_blocks: 4", "num_mid_blocks: 12"),
    (r"num_heads: 4", "num_heads: 8"),
    (r"base_channels: 192", "base_channels: 512"),
    (r"cond_channels: 128", "cond_channels: 512"),
    (r"top_p: 0.3", "top_p: 0.8"),
    (r"top_k: 5", "top_k: 25"),
    (r"tau_r: 0.5", "tau_r: 0.1"),
)
"""What turns the bundled voice's yaml into one of the published sizes and sampling. Its text ids,
and so the lengths, stay the bundled.
"""
PROMPT_TOKENS = 87
"""Of the published default voice: its first block border lies 13 tokens behind it."""


def voices(bundled: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """The bundled voices with prompts of PROMPT_TOKENS: their own, said again from the start where
    they are shorter.
    """
    longer = {}
    for name, voice in bundled.items():
        tokens, mel = voice["flow_prompt_speech_token"], voice["prompt_speech_feat"]
        again = torch.arange(PROMPT_TOKENS) % tokens.shape[1]
        frames = torch.stack([2 * again, 2 * again + 1], dim=1).flatten()
        count = torch.tensor([PROMPT_TOKENS], dtype=torch.int32)
        prompt = {
            f"{stage}_prompt_speech_token{part}": value
            for stage in ("llm", "flow")
            for part, value in (("", tokens[:, again]), ("_len", count))
        }
        longer[name] = voice | prompt | {"prompt_speech_feat": mel[:, frames], "prompt_speech_feat_len": 2 * count}
    return longer


def write(target: Path) -> None:
    """A model directory of the published sizes with random weights; text, prompt encoders and
    voices are the bundled ones.
    """
    target.mkdir(parents=True, exist_ok=True)
    for part in ("campplus.onnx", "speech_tokenizer_v2.onnx"):
        shutil.copy(DEMO / part, target / part)
    torch.save(voices(torch.load(DEMO / "spk2info.pt", weights_only=True)), target / "spk2info.pt")
    shutil.copytree(DEMO / "phonemes", target / "phonemes", dirs_exist_ok=True)
    (target / "CosyVoice-BlankEN").mkdir(exist_ok=True)
    (target / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(BACKBONE))
    text = (DEMO / "cosyvoice2.yaml").read_text(encoding="utf-8")
    for bundled, published in YAML_NUMBERS:
        text, count = re.subn(rf"(?<!\w){bundled}(?![\d.])", published, text)
        if not count:
            raise ValueError(f"{DEMO / 'cosyvoice2.yaml'} has no {bundled}")
    (target / "cosyvoice2.yaml").write_text(text, encoding="utf-8")
    torch.save(llm_tensors(PUBLISHED_LLM, torch.device("cpu"), ends=True), target / "llm.pt")
    torch.save(flow_tensors(), target / "flow.pt")
    torch.save(vocoder_tensors(), target / "hift.pt")
