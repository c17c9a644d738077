"""The BPE tokenizer: parsing, and which files are refused."""

import json
import shutil
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.bpe import CONTROLS, MARKUP, TextTokenizer

TINY = Path(__file__).parents[3] / "golden" / "tiny"
FOLDER = "CosyVoice-BlankEN"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(ModelDirectory(TINY))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(TINY / FOLDER, tmp_path / FOLDER)
    return tmp_path


def test_control_tokens_in_text_are_characters_unless_allowed(tokenizer: TextTokenizer) -> None:
    for token in CONTROLS:
        assert tokenizer.encode(token) == list(token.encode())
        assert tokenizer.encode(token, allow_special=True) == [tokenizer.id_of(token)]


def test_sound_marks_are_always_parsed(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("".join(MARKUP)) == [tokenizer.id_of(mark) for mark in MARKUP] == list(range(260, 276))


def test_text_is_composed_before_it_is_encoded(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9") == list("\u00e9".encode())


def test_merges_are_applied_within_words(copy: Path) -> None:
    vocabulary = json.loads((TINY / FOLDER / "vocab.json").read_text(encoding="utf-8"))
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "hell")]
    vocabulary.update({left + right: 256 + place for place, (left, right) in enumerate(merges)})
    config = json.loads((TINY / FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["added_tokens_decoder"] = {str(260 + place): {"content": token} for place, token in enumerate(CONTROLS[:3])}
    (copy / FOLDER / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (copy / FOLDER / "merges.txt").write_text(
        "#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n", encoding="utf-8"
    )
    (copy / FOLDER / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = TextTokenizer(ModelDirectory(copy))
    assert tokenizer.encode("hello hello 12") == [258, ord("o"), 259, ord("o"), 32, ord("1"), ord("2")]
    assert tokenizer.encode("[breath]") == [264]
    assert len(tokenizer) == 280


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / FOLDER / name).unlink()
    with pytest.raises(ModelError, match=f"{name}: missing"):
        TextTokenizer(ModelDirectory(copy))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "{", "vocab.json: not valid JSON"),
        ("vocab.json", "[]", "vocab.json: expected a JSON object"),
        ("vocab.json", '{"a": "b"}', "vocab.json: expected a mapping of token to integer id"),
        ("vocab.json", '{"a": 0}', "vocab.json: 255 of the 256 byte symbols are missing"),
        ("vocab.json", '{"a": 1}', "vocab.json: ids are not exactly 0 to 0"),
        ("merges.txt", "#version: 0.2\na b c\n", "merges.txt: line 2 is not a pair"),
        ("merges.txt", "a b\n", "merges.txt: does not fit vocab.json"),
        ("tokenizer_config.json", "{}", "tokenizer_config.json: added_tokens_decoder is missing"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"300": {"content": "x"}}}',
            "tokenizer_config.json: .* expected",
        ),
    ],
)
def test_a_corrupt_file_is_named(copy: Path, name: str, content: str, message: str) -> None:
    (copy / FOLDER / name).write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        TextTokenizer(ModelDirectory(copy))
