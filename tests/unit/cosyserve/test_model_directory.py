"""The model directory is read as data: references resolved, nothing constructed, every fault
named.
"""

import errno
import hashlib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, Node, check_tensors


def _directory(tmp_path: Path, yaml: str) -> ModelDirectory:
    (tmp_path / "cosyvoice2.yaml").write_text(yaml, encoding="utf-8")
    return ModelDirectory(tmp_path)


def test_references_and_products(tmp_path: Path) -> None:
    config = _directory(
        tmp_path,
        "rate: 24000\nhop: 480\nper: 2\nflow: !new:some.Flow\n  size: !ref <hop>\n  wide: !ref <hop> * <per>\n  inner: "
        "!name:some.Inner\n"
        "    list: [!ref <rate>, 3]\nagain: !ref <flow>\nempty: !apply:random.seed [1986]\n",
    ).config()
    flow = Node("some.Flow", {"size": 480, "wide": 960, "inner": Node("some.Inner", {"list": [24000, 3]})})
    assert config.items() >= {"flow": flow, "again": flow, "empty": Node("random.seed", [1986])}.items()


def test_a_hostile_tag_is_refused_by_name_and_construction_tags_construct_nothing(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    directory = _directory(tmp_path, f"a: 1\nb: !!python/object/apply:os.system ['touch {proof}']\n")
    with pytest.raises(ModelError, match=r"cosyvoice2\.yaml: .*python/object/apply:os\.system.*line 2"):
        directory.config()
    assert _directory(
        tmp_path, f"a: !apply:os.system ['touch {proof}']\nb: !new:subprocess.Popen\n  args: [touch, {proof}]\n"
    ).config()["a"] == Node("os.system", [f"touch {proof}"])
    assert not proof.exists()


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("a: !ref <b>\n", "unknown key b"),
        ("a: !ref <b>\nb: !ref <a>\n", "deeper than 64"),
        ("a: !ref <b> + 1\nb: 1\n", "neither <name> nor a product"),
        ("a: !ref <b> * <c>\nb: 1\nc: text\n", "not a number"),
        ("a: [1\n", "not valid yaml"),
        ("- 1\n", "expected a mapping"),
        ("a: !include:other.yaml\n", "!include:other.yaml"),
    ],
)
def test_a_malformed_yaml_is_named(tmp_path: Path, yaml: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        _directory(tmp_path, yaml).config()


def test_sections_and_their_missing_keys(tmp_path: Path) -> None:
    directory = _directory(tmp_path, "flow: !new:a.Flow\n  encoder: !new:a.Encoder\n    blocks: 6\n  rate: 5\n")
    assert directory.section("flow", "encoder") == {"blocks": 6}
    with pytest.raises(ModelError, match=r"no key flow\.decoder"):
        directory.section("flow", "decoder", "estimator")
    with pytest.raises(ModelError, match=r"flow\.rate is not a mapping"):
        directory.section("flow", "rate")


def test_missing_directory_and_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model directory"):
        ModelDirectory(tmp_path / "none")
    with pytest.raises(ModelError, match=r"llm\.pt: missing"):
        ModelDirectory(tmp_path).file("llm.pt")
    with pytest.raises(ModelError, match=r"cosyvoice\*\.yaml: missing; a model directory needs one"):
        ModelDirectory(tmp_path).config()


def test_a_hash_that_failed_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ModelDirectory(tmp_path)
    (tmp_path / "llm.pt").write_bytes(b"weights")
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", Mock(side_effect=OSError(errno.EIO, "broken disk", "llm.pt")))
        with pytest.raises(ModelError, match=r"llm\.pt: broken disk"):
            directory.content_hash(["llm.pt"])
    assert directory.content_hash(["llm.pt"]) == directory.begin_hash(["llm.pt"]).result()


def test_content_hash_follows_content_and_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"same")
    directory = ModelDirectory(tmp_path)
    before = directory.content_hash(["a"])
    assert len(before) == 16
    assert before == directory.content_hash(["a"]) != directory.content_hash(["b"])
    (tmp_path / "a").write_bytes(b"other")
    assert directory.content_hash(["a"]) != before


def test_every_wrong_tensor_is_named() -> None:
    found = {"a": np.zeros((2, 3)), "b": np.zeros(4), "extra": np.zeros(1)}
    with pytest.raises(ModelError) as caught:
        check_tensors(Path("flow.pt"), found, {"a": (3, 2), "b": (4,), "gone": (5, 6)})
    text = str(caught.value)
    assert text.startswith("flow.pt: ")
    for part in ("missing tensor gone [5, 6]", "extra tensor extra [1]", "tensor a has shape [2, 3], expected [3, 2]"):
        assert part in text
    check_tensors(Path("flow.pt"), {"b": found["b"]}, {"b": (4,)})
