"""Model directories of CosyVoice3 with random weights: read by every stage, of the sizes that they
say, with sentences that end as asked and a sound that is neither silent nor clipped.
"""

import asyncio
import json
from pathlib import Path

import pytest

from bench.generations.random_models import TINY3, write_cosyvoice3
from bench.generations.sizes import PUBLISHED, resized
from bench.load.engines import Speaker, generated, speech_tokens
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.speaker_file import read_voices
from services.llm.engine.weights import expected_tensors as llm_tensors
from services.llm.generation.config import read_config as read_llm_config
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.dit.weights import expected_tensors as dit_tensors
from services.token2wav.vocoder.causal.weights import read_config
from services.token2wav.vocoder.weights import expected_tensors as vocoder_tensors

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
