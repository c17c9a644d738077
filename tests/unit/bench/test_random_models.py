"""Model directories of CosyVoice3 with random weights: read by every stage, of the sizes that they
say, with sentences that end as asked and a sound that is neither silent nor clipped.
"""

import asyncio
import json
import math
from pathlib import Path

import pytest
import torch

from bench.generations.random_models import DEMO, TINY3, write_cosyvoice3
from bench.generations.sizes import PUBLISHED, resized
from bench.load.engines import Speaker, generated, speech_tokens
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.speaker_file import read_voices
from services.llm.engine.weights import expected_tensors as llm_tensors
from services.llm.generation.config import read_config as read_llm_config
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.dit.weights import expected_tensors as dit_tensors
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.flow.unet.weights import expected_tensors as unet_tensors
from services.token2wav.vocoder.causal.weights import read_config
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.weights import expected_tensors as vocoder_tensors
from services.token2wav.vocoder.weights import read_config as read_hift_config

CPU = torch.device("cpu")
LIMIT = 100


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> ModelDirectory:
    target = tmp_path_factory.mktemp("bundled")
    write_cosyvoice3(target, "bundled")
    return ModelDirectory(target)


def test_the_published_size_has_every_published_tensor(tmp_path: Path) -> None:
    published = json.loads((TINY3.parent / "published_shapes_cosyvoice3.json").read_text())
    (tmp_path / "cosyvoice3.yaml").write_text(resized(TINY3 / "cosyvoice3.yaml", PUBLISHED.yaml))
    (tmp_path / "CosyVoice-BlankEN").mkdir()
    (tmp_path / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(PUBLISHED.backbone))
    (tmp_path / "CosyVoice-BlankEN" / "vocab.json").write_text("{}")
    directory = ModelDirectory(tmp_path)
    found = {
        "llm.pt": llm_tensors(read_llm_config(directory)),
        "flow.pt": dit_tensors(DitConfig.read(directory)),
        "hift.pt": vocoder_tensors(read_config(directory)),
    }
    for name, tensors in found.items():
        shapes = {key: tuple(shape) for key, shape in published[name].items()}
        shapes.pop("llm.model.lm_head.weight", None)  # the tied copy, which the loader accepts and drops
        assert tensors == shapes, name


def test_the_bundled_size_is_that_of_the_bundled_voice(bundled: ModelDirectory) -> None:
    demo, own = ModelDirectory(DEMO), read_llm_config(bundled)
    for name in ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_size"):
        assert getattr(own, name) == getattr(read_llm_config(demo), name), name
    assert read_config(bundled).base_channels == read_hift_config(demo).base_channels
    assert read_config(bundled).f0_channels == read_hift_config(demo).f0_channels
    unet, dit = UnetConfig.read(demo), DitConfig.read(bundled)
    assert dit.lookahead_channels == unet.encoder_width
    each_frame = [
        sum(
            math.prod(shape)
            for name, shape in shapes.items()
            if name.startswith(ESTIMATOR) and len(shape) > 1
            if not any(part in name for part in ("time_", "mlp.1", "attn_norm", "norm_out"))
        )
        for shapes in (unet_tensors(unet), dit_tensors(dit))
    ]
    assert each_frame == [2_189_312, 2_284_032]


def test_the_frontend_reads_its_voices(bundled: ModelDirectory) -> None:
    assert generation_of(bundled) is COSYVOICE3
    tokenizer = read_tokenizer(bundled)
    voices = read_voices(bundled, tokenizer)
    end = tokenizer.id_of("<|endofprompt|>")
    assert [(each.decoder_tokens, each.prompt_text_ids.count(end)) for each in voices] == [(61, 1), (61, 1)]


@pytest.mark.parametrize("ends", [True, False])
def test_sentences_end_at_random_or_at_their_limit(bundled: ModelDirectory, ends: bool, tmp_path: Path) -> None:
    path = bundled.path
    if not ends:
        write_cosyvoice3(path := tmp_path, "bundled", ends=False)

    async def lengths() -> list[int]:
        prompt = Speaker.first_of(path).prompt
        async with speech_tokens(path, "cpu", "auto", 1) as backend:
            seeds, text = range(4 if ends else 1), tuple(range(70, 95))
            return [len(await generated(backend, prompt, text, seed)) for seed in seeds]

    found = asyncio.run(lengths())
    if ends:
        assert len(set(found)) > 1
        assert max(found) <= LIMIT
        assert min(found) < LIMIT
    else:
        assert found == [LIMIT]


@torch.inference_mode()
def test_it_sounds_without_clipping(bundled: ModelDirectory) -> None:
    flow, vocoder, speaker = load_flow(bundled, CPU), load_vocoder(bundled, CPU), Speaker.first_of(bundled.path)
    voice, tokens = speaker.voice, torch.arange(50, 75)
    state = flow.start(
        VoicePrompt(torch.from_numpy(voice.tokens), torch.from_numpy(voice.mel), torch.from_numpy(voice.embedding))
    )
    ids = torch.cat([torch.from_numpy(voice.tokens), tokens])
    mels = []
    for at in range(0, len(ids), 25):
        (mel,) = flow.blocks([state], [ids[at : at + 25]], [ids[at + 25 : at + 28]])
        assert mel is not None
        mels.append(mel)
    mel = torch.cat(mels, dim=1)[:, 2 * len(voice.tokens) :]
    assert 0.1 < float(mel.std()) < 10
    samples = vocoder.offline(mel, 1, 0)
    assert float(samples.std()) > 0.01
    assert float(samples.abs().max()) < 0.9 * 0.99
