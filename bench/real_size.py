"""Random weights of the published sizes, with which a GPU is measured where the published weights
are not at hand.

    python -m bench.real_size DIR        a whole model directory, in seconds
    python -m bench.real_size DIR --generation cosyvoice3 [--size bundled]

Source of names and shapes: compatibility specification sections 3.5, 4.7 and 5.5. CosyVoice3 and
the size of the bundled voice: `bench.generations`.
"""

import argparse
import json
import math
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import GENERATIONS
from services.llm.engine.weights import expected_tensors
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.vocoder.weights import is_gain

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
DEMO = ROOT / "models" / "demo"
SHAPES = ROOT / "tests" / "golden" / "published_shapes.json"
"""Names and shapes of the three published weight files."""
END_LOGIT = 9.0
"""Bias of the end of speech among other logits of standard deviation 3: sentences end, some sooner,
some later.
"""
CONSTANT, CONSTANT_BY_NORM = 8.0, 3.0
"""A head without a bias has one through a column of its input that is the same everywhere: CONSTANT
in every embedding, and about CONSTANT_BY_NORM behind the last norm.
"""
PITCH_HERTZ = 150.0
GAIN = 0.7
"""Length of each filter of the vocoder."""

PUBLISHED_LLM = LlmConfig(
    speech=COSYVOICE2.speech,
    hidden_size=896, intermediate_size=4864, layers=24, heads=14, kv_heads=2, head_size=64, text_vocabulary=151_936,
    rope_theta=1e6,
    rms_norm_eps=1e-6, sampling=SamplingParameters(),
)  # fmt: skip

PUBLISHED_FLOW = UnetConfig(
    vocabulary=6561, speaker=192, input_width=512, encoder_width=512, encoder_heads=8, encoder_feed_forward=2048,
    encoder_layers=6,
    channels=256, estimator_heads=8, head_width=64, transformers=4, middle=12, guidance=0.7,
)  # fmt: skip


def llm_tensors(config: LlmConfig, device: torch.device, seed: int = 0, *, ends: bool = False) -> dict[str, Tensor]:
    """Float32 tensors of `llm.pt` with numbers that stay of one size through the layers; the head
    is steep enough for a sampler to have likely and unlikely ids. ends: the end of speech is one of
    the likely ones, else it never comes."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("norm.weight"):
            tensors[name] = 1.0 + 0.1 * torch.randn(shape, generator=generator, device=device)
            continue
        scale = 0.1 if len(shape) == 1 else 1.0 / math.sqrt(shape[-1])
        if name == "llm_decoder.weight":
            scale *= 3.0
        if "o_proj" in name or "down_proj" in name:
            scale /= math.sqrt(2 * config.layers) / 4
        if "embed" in name:
            scale = 1.0
        tensors[name] = scale * torch.randn(shape, generator=generator, device=device)
    speech = config.speech
    logit = END_LOGIT if ends else -END_LOGIT
    if speech.head_bias:
        tensors["llm_decoder.weight"][speech.end], tensors["llm_decoder.bias"][speech.end] = 0.0, logit
        return tensors
    for name, tensor in tensors.items():
        if "embed" in name:
            tensor[:, 0] = CONSTANT
        elif "o_proj" in name or "down_proj" in name:
            tensor[0] = 0.0
    tensors["llm.model.model.norm.weight"][0] = 1.0
    head = tensors["llm_decoder.weight"]
    head[:, 0] = 0.0
    head[speech.tokens :] = 0.0
    # Every special id would end the sentence; one of them is as likely as without the others.
    head[speech.tokens :, 0] = -END_LOGIT / CONSTANT_BY_NORM
    head[speech.end, 0] = logit / CONSTANT_BY_NORM
    return tensors


def sound_tensors(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """Float32 tensors of `flow.pt` or `hift.pt`: matrices and convolutions that keep the size of
    what goes through, norms of 1.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
        if name.endswith(("original0", "weight_g", "alpha")) or (len(shape) == 1 and name.endswith("weight")):
            tensors[name] = torch.ones(shape)
        elif inputs:
            tensors[name] = torch.randn(shape, generator=generator) / math.sqrt(inputs)
        else:
            tensors[name] = 0.05 * torch.randn(shape, generator=generator)
    return tensors


def flow_tensors() -> dict[str, Tensor]:
    """Of `flow.pt`."""
    return sound_tensors(json.loads(SHAPES.read_text())["flow.pt"], seed=1)


def vocoder_tensors(shapes: Mapping[str, list[int]] | None = None) -> dict[str, Tensor]:
    """Of `hift.pt`; its voice is pitched around PITCH_HERTZ, so that the source of harmonics is at
    work, and no sample is clipped. shapes: None: those of the published CosyVoice2.
    """
    tensors = sound_tensors(json.loads(SHAPES.read_text())["hift.pt"] if shapes is None else shapes, seed=2)
    tensors["f0_predictor.classifier.bias"].fill_(PITCH_HERTZ)
    for name, tensor in tensors.items():
        if is_gain(name):
            tensor.fill_(GAIN)
    return tensors


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


def prompts(bundled: dict[str, dict[str, Any]], length: int) -> dict[str, dict[str, Any]]:
    """The bundled voices with prompts of `length` tokens: their own, said again from the start
    where they are shorter.
    """
    longer = {}
    for name, voice in bundled.items():
        tokens, mel = voice["flow_prompt_speech_token"], voice["prompt_speech_feat"]
        again = torch.arange(length) % tokens.shape[1]
        frames = torch.stack([2 * again, 2 * again + 1], dim=1).flatten()
        count = torch.tensor([length], dtype=torch.int32)
        prompt = {
            f"{stage}_prompt_speech_token{part}": value
            for stage in ("llm", "flow")
            for part, value in (("", tokens[:, again]), ("_len", count))
        }
        longer[name] = voice | prompt | {"prompt_speech_feat": mel[:, frames], "prompt_speech_feat_len": 2 * count}
    return longer


def write(target: Path) -> None:
    """A model directory of CosyVoice2 of the published sizes with random weights; text, prompt
    encoders and voices are the bundled ones.
    """
    target.mkdir(parents=True, exist_ok=True)
    for part in ("campplus.onnx", "speech_tokenizer_v2.onnx"):
        shutil.copy(DEMO / part, target / part)
    torch.save(prompts(torch.load(DEMO / "spk2info.pt", weights_only=True), PROMPT_TOKENS), target / "spk2info.pt")
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


def write_model(target: Path, generation: str, size: str) -> None:
    """A model directory of either generation, `published` or `bundled` in size."""
    from bench.generations.random_models import write_bundled_cosyvoice2, write_cosyvoice3

    if generation == COSYVOICE3.name:
        write_cosyvoice3(target, size)
    elif size == "bundled":
        write_bundled_cosyvoice2(target)
    else:
        write(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--generation", choices=[each.name for each in GENERATIONS], default=COSYVOICE2.name)
    parser.add_argument(
        "--size", choices=("published", "bundled"), default="published", help="bundled: of the bundled voice"
    )
    options = parser.parse_args()
    target = options.directory
    started = time.perf_counter()
    write_model(target, options.generation, options.size)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 1e9:.2f} GB in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
