"""A Hugging Face directory of others, as the published one is made, is converted and served with
the model directory it was made of.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import model_hash
from services.llm.hosted.conversion import HUGGING_FACE, Conversion
from services.llm.hosted.extended_vocabulary import VOCABULARY_FILE, ExtendedVocabulary
from tests.unit.llm.tiny_llm import TINY
from tests.unit.model.steps import as_published
from tools.model import verify
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With other numbers in rows that are never used."""
    folder = tmp_path_factory.mktemp("published")
    convert(TINY, "hf", Precision.FLOAT32, folder / "hf")
    unused = ExtendedVocabulary.load(folder / "hf" / VOCABULARY_FILE).text_ids
    return as_published(folder / "hf", folder / "of-others", unused_rows=unused)


def rounded(published: Path, to: Path, change: str | None = None) -> Path:
    """The same in bfloat16 kept as float32, as some writers do; change: name of a tensor of which
    one value is another.
    """
    shutil.copytree(published, to)
    given: dict[str, Any] = load_file(to / "model.safetensors")
    for name, values in given.items():
        bits = values.view(np.uint32)
        result = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        given[name] = np.where(np.isfinite(values), result, values)
    if change:
        given[change].flat[given[change].size // 2] += 0.25
    save_file(given, to / "model.safetensors", {"format": "pt"})
    return to


def test_without_the_model_directory_it_stays_a_model_of_its_own(published: Path, tmp_path: Path) -> None:
    assert convert(published, "hf", Precision.FLOAT32, tmp_path / "made")["source"] != model_hash(ModelDirectory(TINY))


@pytest.mark.parametrize("target", ["hf", "vllm", "trtllm-1.x"])
def test_with_its_model_directory_it_is_served_and_verified(
    published: Path, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = model_hash(ModelDirectory(TINY))
    assert convert(published, target, Precision.FLOAT32, tmp_path / "made", model=TINY)["source"] == identity
    assert verify.main(["llm", str(TINY), str(tmp_path / "made")]) == 0, capsys.readouterr().out
    if target == "hf":
        assert Conversion.open(tmp_path / "made", identity, (HUGGING_FACE,)).precision == "float32"


def test_rounded_weights_are_the_same_model(published: Path, tmp_path: Path) -> None:
    result = convert(rounded(published, tmp_path / "bf16"), "hf", Precision.BFLOAT16, tmp_path / "made", model=TINY)
    assert result["source"] == model_hash(ModelDirectory(TINY))


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight", "lm_head.bias"]
)
def test_one_other_value_is_another_model(published: Path, name: str, tmp_path: Path) -> None:
    other = rounded(published, tmp_path / "other", change=name)
    with pytest.raises(ModelError, match=rf"other is no conversion of .*: {name} is not the model's"):
        convert(other, "hf", Precision.FLOAT32, tmp_path / "made", model=TINY)
    assert not (tmp_path / "made").exists()
