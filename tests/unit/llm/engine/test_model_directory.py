"""A model directory that cannot be served is refused with the file and the tensor or key that is
wrong.
"""

import json
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import load_tensors, model_hash
from services.llm.generation.config import read_config
from tests.stacks.up_process import TINY3
from tests.unit.llm.tiny_llm import TINY

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("cosyvoice2.yaml", "llm.pt"):
        shutil.copy(TINY / name, tmp_path / name)
    shutil.copytree(TINY / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    return tmp_path


def load(path: Path) -> Tensors:
    directory = ModelDirectory(path)
    return load_tensors(directory, read_config(directory))


def rewrite(path: Path, change: Callable[[Tensors], object]) -> None:
    tensors = torch.load(path / "llm.pt", weights_only=True)
    change(tensors)
    torch.save(tensors, path / "llm.pt")


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as refused:
        load(path)
    text = str(refused.value)
    assert "\n" not in text
    return text.removeprefix(f"{path}/")


def test_the_tied_head_may_be_there_or_not(copy: Path) -> None:
    with_head = load(copy)
    rewrite(copy, lambda tensors: tensors.pop("llm.model.lm_head.weight"))
    assert with_head.keys() == load(copy).keys()
    assert "llm.model.lm_head.weight" not in with_head


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_floating_type_becomes_float32(copy: Path, dtype: torch.dtype) -> None:
    rewrite(copy, lambda tensors: tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()}))
    loaded = load(copy)
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    torch.testing.assert_close(loaded["llm_decoder.bias"], load(TINY)["llm_decoder.bias"], atol=0.02, rtol=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("llm_decoder.bias"), "llm.pt: missing tensor llm_decoder.bias [6564]"),
        (lambda t: t.update(novel=torch.zeros(2, 3)), "llm.pt: extra tensor novel [2, 3]"),
        (
            lambda t: t.update({"llm_decoder.bias": torch.zeros(6561)}),
            "llm.pt: tensor llm_decoder.bias has shape [6561], expected [6564]",
        ),
        (
            lambda t: t.update({"llm_decoder.bias": torch.zeros(6564, dtype=torch.int64)}),
            "llm.pt: tensor llm_decoder.bias is torch.int64, expected floating point",
        ),
        (
            lambda t: t.update({"llm.model.lm_head.weight": torch.zeros(3, 64)}),
            "llm.pt: tensor llm.model.lm_head.weight has shape [3, 64], expected [300, 64]",
        ),
        (
            lambda t: t["llm_decoder.bias"][7].fill_(float("nan")),
            "llm.pt: tensor llm_decoder.bias holds values that are not finite",
        ),
        (
            lambda t: t["speech_embedding.weight"][3, 2].fill_(float("inf")),
            "llm.pt: tensor speech_embedding.weight holds values that are not finite",
        ),
        (lambda t: t.update(epoch=3), "llm.pt: entry 'epoch' is a int, expected a tensor"),
    ],
)
def test_a_wrong_tensor_is_named(copy: Path, change: Callable[[Tensors], object], message: str) -> None:
    rewrite(copy, change)
    assert refusal(copy) == message


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/cosyserve-was-here; exit 1",)


@pytest.mark.parametrize("archive", [True, False])
def test_a_hostile_pickle_is_refused_and_not_run(copy: Path, monkeypatch: pytest.MonkeyPatch, archive: bool) -> None:
    ran: list[object] = []
    if archive:
        torch.save(OrderedDict(weight=Hostile()), copy / "llm.pt")
    else:
        (copy / "llm.pt").write_bytes(pickle.dumps(Hostile()))
    monkeypatch.setattr(os, "system", ran.append)
    assert refusal(copy) == "llm.pt: not a file of tensors (its pickle asks for something else, which is not executed)"
    assert ran == []


@pytest.mark.parametrize("content", [b"", b"not a pickle at all", b"PK\x03\x04 and then nothing", None])
def test_a_damaged_file_is_refused(copy: Path, content: bytes | None) -> None:
    """None: the first half of the file."""
    whole = (copy / "llm.pt").read_bytes()
    (copy / "llm.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert refusal(copy).startswith("llm.pt: not a file of tensors (")


def test_something_else_than_a_mapping_is_refused(copy: Path) -> None:
    torch.save([torch.zeros(2)], copy / "llm.pt")
    assert refusal(copy) == "llm.pt: holds a list, expected a mapping of names to tensors"


@pytest.mark.parametrize("name", ["llm.pt", "CosyVoice-BlankEN/config.json"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    assert refusal(copy) == f"{name}: missing; a model directory needs it"


def test_a_directory_without_a_yaml_is_refused(copy: Path) -> None:
    (copy / "cosyvoice2.yaml").unlink()
    assert refusal(copy).endswith(
        "none of cosyvoice2.yaml, cosyvoice.yaml, cosyvoice3.yaml is there; a model directory needs one"
    )


@pytest.fixture
def copy3(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(TINY3, tmp_path / "tiny3", ignore=shutil.ignore_patterns("*.npz", "flow.pt", "hift.pt"))
    )


@pytest.mark.parametrize(
    ("of", "other", "rows", "own"),
    [
        (TINY, "CosyVoice2", 6564, "CosyVoice3, which has 6761"),
        (TINY3, "CosyVoice3", 6761, "CosyVoice2, which has 6564"),
    ],
)
def test_weights_of_another_generation_are_named(
    copy: Path, copy3: Path, of: Path, other: str, rows: int, own: str
) -> None:
    directory = copy3 if of is TINY else copy
    shutil.copy(of / "llm.pt", directory / "llm.pt")
    assert refusal(directory) == (
        f"llm.pt: its {rows} rows of speech are those of {other}; the directory's yaml is of {own}"
    )


def test_the_mark_before_the_text_is_found_in_the_vocabulary(copy3: Path) -> None:
    """Behind the words and <|endoftext|>, <|im_start|>, <|im_end|>."""
    assert read_config(ModelDirectory(copy3)).end_of_prompt == 259
    assert read_config(ModelDirectory(TINY)).end_of_prompt is None
    path = copy3 / "CosyVoice-BlankEN" / "vocab.json"
    words, hash_before = json.loads(path.read_text()), model_hash(ModelDirectory(copy3))
    path.write_text(json.dumps(words | {"more": 256}))
    assert read_config(ModelDirectory(copy3)).end_of_prompt == 260
    assert model_hash(ModelDirectory(copy3)) != hash_before
    path.write_text(json.dumps(dict.fromkeys(map(str, range(600)))))
    assert refusal(copy3) == (
        "CosyVoice-BlankEN/config.json: vocab_size is 576; CosyVoice3 has to have <|endofprompt|>, which is id 603 of "
        "this tokenizer"
    )
    path.write_text("[")
    assert "vocab.json: not valid json" in refusal(copy3)
    path.unlink()
    assert refusal(copy3) == "CosyVoice-BlankEN/vocab.json: missing; a model directory needs it"


def test_a_hostile_yaml_tag_is_refused(copy: Path) -> None:
    with (copy / "cosyvoice2.yaml").open("a") as stream:
        stream.write("\nevil: !!python/object/apply:os.system ['true']\n")
    assert "python/object/apply:os.system" in refusal(copy)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_act", "gelu", "hidden_act is 'gelu', only 'silu' is supported"),
        ("rope_scaling", {"type": "yarn"}, "rope_scaling is {'type': 'yarn'}, only None is supported"),
        ("num_hidden_layers", 0, "num_hidden_layers is 0, expected a positive number"),
        ("vocab_size", "many", "vocab_size is 'many', expected a positive number"),
        ("num_attention_heads", 3, "3 heads of 21 with 2 key heads do not fit a width of 64"),
        ("intermediate_size", 1.5, "intermediate_size is 1.5, expected a whole number"),
    ],
)
def test_a_backbone_that_would_be_computed_wrongly_is_refused(
    copy: Path, key: str, value: object, message: str
) -> None:
    path = copy / "CosyVoice-BlankEN" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert refusal(copy) == f"CosyVoice-BlankEN/config.json: {message}"


def with_llm_keys(copy: Path, keys: str) -> Path:
    """The directory with further keys in the yaml's part about this service."""
    path = copy / "cosyvoice2.yaml"
    path.write_text((TINY / "cosyvoice2.yaml").read_text().replace("    mix_ratio:", f"{keys}    mix_ratio:", 1))
    return copy


def bounds(least: object, most: object) -> str:
    return f"    min_token_text_ratio: {least}\n    max_token_text_ratio: {most}\n"


@pytest.mark.parametrize(
    ("keys", "ratios", "longest"),
    [
        ("", (2, 20), [20, 40, 60, 4000, 4096]),
        (bounds(0.6, 4), (0.6, 4), [4, 8, 12, 800, 1200]),
        ("    shortest_limit: 50\n", (2, 20), [50, 50, 60, 4000, 4096]),
    ],
)
def test_bounds_of_length_are_read_from_the_yaml(
    copy: Path, keys: str, ratios: tuple[float, float], longest: list[int]
) -> None:
    lengths = read_config(ModelDirectory(with_llm_keys(copy, keys))).lengths
    assert (lengths.min_token_text_ratio, lengths.max_token_text_ratio) == ratios
    assert [lengths.longest(ids) for ids in (1, 2, 3, 200, 300)] == longest


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (bounds(0.6, 0.5), "min_token_text_ratio 0.6 and max_token_text_ratio 0.5 are no range"),
        (bounds(".nan", 20), "min_token_text_ratio nan and max_token_text_ratio 20 are no range"),
        *((f"    shortest_limit: {wrong}\n", "shortest_limit") for wrong in ("0", "4097", "2.5", "many")),
    ],
)
def test_bounds_that_are_none_are_refused(copy: Path, keys: str, message: str) -> None:
    assert message in refusal(with_llm_keys(copy, keys))


def test_the_identity_follows_weights_and_sampling(copy: Path) -> None:
    assert model_hash(ModelDirectory(copy)) == model_hash(ModelDirectory(TINY))
    path = copy / "cosyvoice2.yaml"
    path.write_text(path.read_text().replace("top_p: 0.8", "top_p: 0.7"))
    assert model_hash(ModelDirectory(copy)) != model_hash(ModelDirectory(TINY))
    assert read_config(ModelDirectory(copy)).sampling.top_p == 0.7


def test_weights_in_a_deflated_archive_are_read_all_the_same(copy: Path) -> None:
    path = copy / "llm.pt"
    with zipfile.ZipFile(path) as stored:
        records = {record.filename: stored.read(record) for record in stored.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as deflated:
        for name, content in records.items():
            deflated.writestr(name, content)
    packed = load(copy)
    assert all(torch.equal(packed[name], tensor) for name, tensor in load(TINY).items())
