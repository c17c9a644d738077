"""The forms of CosyVoice3's speech-token model say what the reference said, number their tokens as
the published conversion does, and leave text no score.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cosyserve.engines.engine_cache import EngineCache
from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, MASKED, VOCABULARY_FILE, ExtendedVocabulary
from tests.stacks.up_process import TINY, TINY3
from tools.model import inspect
from tools.model.checkpoints.forms import TARGETS
from tools.model.checkpoints.hugging_face_reader import as_conversion_of, open_checkpoint
from tools.model.checkpoints.tensor_file import Precision
from tools.model.comparison.converted_model import read_conversion
from tools.model.convert import convert
from tools.model.verify_llm import questions, verify

FIRST, IDS = 537, 6761
"""The first speech id of the extended vocabulary, and how many there are."""


@pytest.fixture(scope="module")
def conversion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every target in float32, by name."""
    folder = tmp_path_factory.mktemp("converted")
    for target in TARGETS:
        convert(TINY3, target, Precision.FLOAT32, folder / target)
    return folder


@pytest.mark.parametrize("target", TARGETS)
def test_a_conversion_gives_the_reference_scores(conversion: Path, target: str) -> None:
    converted = read_conversion(conversion / target, f"llm-{target}")
    _, question = next(questions(TINY3, ExtendedVocabulary.load(conversion / target / VOCABULARY_FILE)))
    with torch.inference_mode():
        scores = converted.log_probabilities(converted.hidden(question)[-1][question.before - 1 :]).numpy()
    with np.load(TINY3 / "llm.npz") as golden:
        speech = slice(converted.first, converted.first + IDS)
        assert np.abs(scores[:, speech] - golden["logprobs_forced"]).max() < 1e-4
    assert np.delete(scores, np.r_[speech], axis=1).max(initial=-np.inf) < MASKED / 2


def test_verify_compares_it_with_the_torch_path(conversion: Path) -> None:
    report, lines = verify(TINY3, conversion / "hf")
    assert (report.ok, lines) == (True, [])


def test_the_numbering_is_the_published_one() -> None:
    published = ExtendedVocabulary(151_924, COSYVOICE3.speech)
    assert (published.start, published.end, published.task) == (158_485, 158_486, 158_487)
    assert (published.tokens, published.rows) == (158_685, 158_720)
    names = published.added_tokens
    assert (len(names), names[0], names[6560], names[6565], names[-1]) == (
        IDS, "<|s_0|>", "<|s_6560|>", "<|s_6565|>", "<|s_6760|>"
    )  # fmt: skip
    assert names[6561:6565] == ["<|sos|>", "<|eos1|>", "<|task_id|>", "<|fill|>"]
    assert len(published.stops) == 200


def test_the_vllm_export_is_a_plain_qwen2(conversion: Path) -> None:
    config = json.loads((conversion / "vllm" / "config.json").read_text())
    assert (config["architectures"], config["vocab_size"]) == (["Qwen2ForCausalLM"], IDS)
    assert "use_bias" not in config
    assert "lm_head.bias" not in load_file(conversion / "vllm" / "model.safetensors")
    assert list(load_file(conversion / "vllm" / "cosyserve" / "prompt_embeddings.safetensors")) == ["text"]


def test_the_tokenizer_has_all_marks_before_the_speech_tokens(conversion: Path) -> None:
    config = json.loads((conversion / "hf" / "tokenizer_config.json").read_text())
    added = {int(index): token["content"] for index, token in config["added_tokens_decoder"].items()}
    assert sorted(added) == list(range(256, FIRST + IDS))
    assert (added[259], added[FIRST - 1], added[FIRST]) == ("<|endofprompt|>", f"[{'ǜ'}]", "<|s_0|>")


def published(conversion: Path, to: Path) -> Path:
    """As others make one: text has rows in the head, no files of ours."""
    shutil.copytree(conversion / "hf", to, ignore=shutil.ignore_patterns("cosyserve", "manifest.json"))
    given = load_file(to / "model.safetensors")
    given["lm_head.weight"][:FIRST] = 0.5
    save_file(given, to / "model.safetensors", {"format": "pt"})
    return to


def test_a_published_conversion_is_read_and_its_text_is_masked(conversion: Path, tmp_path: Path) -> None:
    theirs, ours = open_checkpoint(published(conversion, tmp_path / "theirs")), open_checkpoint(TINY3)
    assert (theirs.generation, theirs.vocabulary) == (COSYVOICE3, ours.vocabulary)
    assert as_conversion_of(theirs, ours).identity == ours.identity
    bias = theirs.head_bias.tensor()
    assert (bias[FIRST : FIRST + IDS] == 0).all()
    assert (bias[:FIRST] == MASKED).all()
    assert (bias[FIRST + IDS :] == MASKED).all()
    convert(tmp_path / "theirs", "hf", Precision.FLOAT32, tmp_path / "again", model=TINY3)
    again, first = (
        load_file(folder / HEAD_BIAS_FILE)["head_bias"] for folder in (tmp_path / "again", conversion / "hf")
    )
    assert torch.equal(again, first)


def test_a_conversion_of_the_other_generation_is_none_of_this_model(conversion: Path) -> None:
    with pytest.raises(ModelError, match="it is of CosyVoice3, the model is of CosyVoice2"):
        as_conversion_of(open_checkpoint(conversion / "hf"), open_checkpoint(TINY))


def test_inspect_describes_the_directory_and_its_conversion(conversion: Path, tmp_path: Path) -> None:
    described = inspect.describe(TINY3, EngineCache(tmp_path), quick=True)
    assert described["kind"] == "CosyVoice3 model directory"
    assert "head_bias" not in described
    numbers = {"text_ids": FIRST, "start_id": FIRST + 6561, "end_of_speech_id": FIRST + 6562, "task_id": FIRST + 6563}
    assert numbers.items() <= described["vocabulary"].items()
    assert described["vocabulary"]["extended_tokens"] == FIRST + IDS
    assert numbers.items() <= inspect.describe(conversion / "hf", EngineCache(tmp_path))["vocabulary"].items()
    stored = inspect.describe(conversion / "trtllm-1.x", EngineCache(tmp_path))["files"]["rank0.safetensors"]
    assert described["memory"]["torch_float32"]["weights_bytes"] == 4 * described["llm"]["parameters"]
    assert described["memory"]["tensorrt_llm_bfloat16"]["weights_bytes"] == stored["bytes_of_tensors"] // 2
