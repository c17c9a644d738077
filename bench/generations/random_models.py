"""Model directories with random weights: CosyVoice3 of either size, CosyVoice2 of the bundled one.

Seeded, and scaled so that nothing saturates. The text ids of CosyVoice3 are those of
`tests/golden/tiny3`, bytes; prompt encoders and the sound of the prompts are the bundled ones.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.generations.random_weights import llm_tensors, prompts, sound_tensors, voiced_tensors
from bench.generations.sizes import SIZES, resized
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import end_of_prompt_id, generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.voices.voice_notes import FIELD
from services.llm.generation.config import read_config as read_llm_config
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.weights import FREQUENCIES, DitConfig
from services.token2wav.flow.dit.weights import expected_tensors as dit_tensors
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.flow.unet.weights import expected_tensors as unet_tensors
from services.token2wav.vocoder.causal.weights import read_config as read_causal_config
from services.token2wav.vocoder.weights import expected_tensors as vocoder_shapes
from services.token2wav.vocoder.weights import read_config as read_hift_config

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "models" / "demo"
TINY3 = ROOT / "tests" / "golden" / "tiny3"
ROTARY_BASE = 10_000.0
TEXT_IDS = 44
"""Of the transcript of a prompt, without the system part: as many as the bundled voice has."""


def write_cosyvoice3(target: Path, size: str, *, ends: bool = True) -> None:
    """size: `published` or `bundled`. ends: sentences end at random, else only at their length
    limit, four speech tokens for a text id.
    """
    sizes, encoder = SIZES[size], target / "CosyVoice-BlankEN"
    shutil.copytree(TINY3 / "CosyVoice-BlankEN", encoder, dirs_exist_ok=True)
    (encoder / "config.json").write_text(json.dumps(sizes.backbone))
    (target / "cosyvoice3.yaml").write_text(resized(TINY3 / "cosyvoice3.yaml", sizes.yaml), encoding="utf-8")
    shutil.copy(DEMO / "campplus.onnx", target)
    shutil.copy(DEMO / "speech_tokenizer_v2.onnx", target / COSYVOICE3.speech_tokenizer)
    directory = ModelDirectory(target)
    # As tiny3's other text ids, these are bytes; what they say does not matter.
    system = [*range(40, 68), end_of_prompt_id(directory, COSYVOICE3)]
    text = torch.tensor([[*system, *range(70, 70 + TEXT_IDS)]], dtype=torch.int32)
    written = {"prompt_text": text, "prompt_text_len": torch.tensor([text.shape[1]], dtype=torch.int32)}
    voices = {
        name: {field: value for field, value in voice.items() if field != FIELD} | written
        for name, voice in prompts(_bundled_voices(), sizes.prompt_tokens).items()
    }
    torch.save(voices, target / "spk2info.pt")
    _write_weights(directory, ends=ends)


def write_bundled_cosyvoice2(target: Path, *, ends: bool = True) -> None:
    """The bundled model but for its weights. ends: as above."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("cosyvoice2.yaml", "spk2info.pt", "campplus.onnx", "speech_tokenizer_v2.onnx"):
        shutil.copy(DEMO / name, target)
    for name in ("phonemes", "CosyVoice-BlankEN"):
        shutil.copytree(DEMO / name, target / name, dirs_exist_ok=True)
    _write_weights(ModelDirectory(target), ends=ends)


def _write_weights(directory: ModelDirectory, *, ends: bool) -> None:
    """`llm.pt`, `flow.pt` and `hift.pt` of the sizes in the yaml."""
    torch.save(llm_tensors(read_llm_config(directory), torch.device("cpu"), ends=ends), directory.path / "llm.pt")
    torch.save(_flow_tensors(directory), directory.path / "flow.pt")
    causal = generation_of(directory).vocoder_network == COSYVOICE3.vocoder_network
    config = read_causal_config(directory) if causal else read_hift_config(directory)
    torch.save(voiced_tensors(vocoder_shapes(config)), directory.path / "hift.pt")


def _flow_tensors(directory: ModelDirectory) -> dict[str, Tensor]:
    if generation_of(directory).flow_network != COSYVOICE3.flow_network:
        return sound_tensors(unet_tensors(UnetConfig.read(directory)), seed=1)
    return dit_flow_tensors(DitConfig.read(directory))


def dit_flow_tensors(config: DitConfig) -> dict[str, Tensor]:
    """Of CosyVoice3's `flow.pt`, with the frequencies that its rotary positions have."""
    tensors = sound_tensors(dit_tensors(config), seed=1)
    places = torch.arange(0, config.head_width, 2) / config.head_width
    return tensors | {ESTIMATOR + FREQUENCIES: ROTARY_BASE**-places}


def _bundled_voices() -> dict[str, dict[str, Any]]:
    voices: dict[str, dict[str, Any]] = torch.load(DEMO / "spk2info.pt", weights_only=True)
    return voices
