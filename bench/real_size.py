"""Random weights of the published sizes, with which a GPU is measured where the published weights
are not at hand.

    python -m bench.real_size DIR        a whole model directory, in seconds
    python -m bench.real_size DIR --generation cosyvoice3 [--size bundled]
    python -m bench.real_size DIR --generation step-audio2   flow and vocoder alone, for the first

Source of names and shapes: compatibility specification sections 3.5, 4.7 and 5.5. CosyVoice3 and
the size of the bundled voice: `bench.generations.sizes`.
"""

import argparse
import json
import re
import shutil
import time
from pathlib import Path

import torch
from torch import Tensor

from bench.generations.random_models import write_bundled_cosyvoice2, write_cosyvoice3
from bench.generations.random_weights import llm_tensors, prompts, sound_tensors, voiced_tensors
from bench.generations.step_audio2 import write_step_audio2
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import GENERATIONS
from cosyserve.generations.separate_decoder import DECODERS, STEP_AUDIO2
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.unet.weights import UnetConfig

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "models" / "demo"
SHAPES = ROOT / "tests" / "golden" / "published_shapes.json"
"""Names and shapes of the three published weight files."""
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
PUBLISHED_DIT = DitConfig(
    vocabulary=6561, speaker=192, lookahead_channels=1024, width=1024, depth=22, heads=16, head_width=64,
    feed_forward=2048, guidance=0.7,
)  # fmt: skip


def flow_tensors() -> dict[str, Tensor]:
    """Of `flow.pt`."""
    return sound_tensors(json.loads(SHAPES.read_text())["flow.pt"], seed=1)


def vocoder_tensors() -> dict[str, Tensor]:
    """Of `hift.pt`: see `voiced_tensors`."""
    return voiced_tensors(json.loads(SHAPES.read_text())["hift.pt"])


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


def write(target: Path, *, ends: bool = True) -> None:
    """A model directory of CosyVoice2 of the published sizes with random weights; text, prompt
    encoders and voices are the bundled ones. ends: sentences end at random, else only at their
    length limit.
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
    torch.save(llm_tensors(PUBLISHED_LLM, torch.device("cpu"), ends=ends), target / "llm.pt")
    torch.save(flow_tensors(), target / "flow.pt")
    torch.save(vocoder_tensors(), target / "hift.pt")


def write_model(target: Path, generation: str, size: str, *, ends: bool = True) -> None:
    """A model directory of either generation, `published` or `bundled` in size, or one of
    Step-Audio2's flow and vocoder, `published` alone. ends: as in `write`.
    """
    if generation == STEP_AUDIO2.name:
        if size != "published":
            raise ValueError(f"{STEP_AUDIO2.title} has no size {size!r}; there is 'published'")
        write_step_audio2(target, vocoder_tensors())
    elif generation == COSYVOICE3.name:
        write_cosyvoice3(target, size, ends=ends)
    elif size == "bundled":
        write_bundled_cosyvoice2(target, ends=ends)
    else:
        write(target, ends=ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    names = [generation.name for generation in GENERATIONS] + [decoder.name for decoder in DECODERS]
    parser.add_argument("--generation", choices=names, default=COSYVOICE2.name)
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
