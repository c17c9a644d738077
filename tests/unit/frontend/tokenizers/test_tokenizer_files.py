"""The files of both tokenizers: written files are read back, errors name the damaged one, and the
directory decides which tokenizer it is; and what the BPE tokenizer parses.
"""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.tokenizers.bpe import TextTokenizer
from services.frontend.tokenizers.phonemes.letter_to_sound import (
    EDGE,
    LetterModel,
    NGrams,
    Row,
    cost_character,
    pair_character,
    read_letters,
    write_letters,
)
from services.frontend.tokenizers.phonemes.lexicon import read_lexicon, write_lexicon
from services.frontend.tokenizers.phonemes.symbols import SYMBOLS
from services.frontend.tokenizers.phonemes.tokenizer import FILES, PhonemeTokenizer
from services.frontend.tokenizers.placeholders import CONTROLS, MARKUP

TINY = Path(__file__).parents[3] / "golden" / "tiny"
WORDS = {"go": "ɡˈO", "close": "klˈOs", "Polish": "pˈOlɪʃ", "polish": "pˈɑlɪʃ"}
PAIRS = [("a", "ˈæ"), ("a", "ə"), ("b", "b"), ("e", "")]


def model() -> NGrams:
    """Prefers a stressed a; after b, a weak one."""
    numbers = "".join(map(pair_character, range(len(PAIRS))))
    costs = "".join(map(cost_character, (1, 2, 1, 1, 1)))
    return NGrams(
        PAIRS,
        {
            "": Row(cost_character(0), numbers + EDGE, costs),
            numbers[2]: Row(cost_character(3), numbers[1], cost_character(0.5)),
        },
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    symbols, lexicon, letters = (tmp_path / name for name in FILES)
    symbols.parent.mkdir()
    symbols.write_text(json.dumps(SYMBOLS), encoding="utf-8")
    write_lexicon(lexicon, WORDS, {"close": {"VERB": "klˈOz"}})
    write_letters(letters, model())
    return tmp_path


def test_the_lexicon_is_read_as_written(directory: Path) -> None:
    assert read_lexicon(directory / FILES[1]) == (WORDS, {"close": {"VERB": "klˈOz"}})


def test_equal_contents_are_equal_bytes(directory: Path, tmp_path: Path) -> None:
    write_letters(tmp_path / "again.gz", model())
    assert (tmp_path / "again.gz").read_bytes() == (directory / FILES[2]).read_bytes()


@pytest.mark.parametrize(
    ("word", "phones"),
    [("ab", "ˈæb"), ("aba", "ˈæbə"), ("a-b", "ˈæb"), ("ba", "bˈæ"), ("e", ""), ("-", ""), ("aa", "ˈæə")],
)
def test_the_likeliest_pairs_with_one_main_stress(directory: Path, word: str, phones: str) -> None:
    assert LetterModel(model()).pronounce(word) == phones
    assert read_letters(directory / FILES[2]).pronounce(word) == phones


def test_a_letter_that_can_only_be_stressed_is_silent_after_the_stress() -> None:
    only = NGrams([("a", "ˈæ")], {"": Row(cost_character(0), pair_character(0), cost_character(1))})
    assert LetterModel(only).pronounce("aa") == "ˈæ"


def test_case_tells_words_apart_inside_a_sentence(directory: Path) -> None:
    tokenizer = PhonemeTokenizer(ModelDirectory(directory))
    assert tokenizer.phonemes("Polish, go Polish, go polish!") == "pˈɑlɪʃ, ɡˈO pˈOlɪʃ, ɡˈO pˈɑlɪʃ!"


def test_the_directory_decides_how_text_is_read(directory: Path) -> None:
    assert isinstance(read_tokenizer(ModelDirectory(directory)), PhonemeTokenizer)
    assert isinstance(read_tokenizer(ModelDirectory(TINY)), TextTokenizer)


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"vocab\.json: missing"):
        read_tokenizer(ModelDirectory(tmp_path))


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


DAMAGE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (FILES[0], lambda data: data[:-3], "not a readable JSON file"),
    (FILES[0], lambda _: b"{}", "expected a list of single characters"),
    (FILES[0], lambda _: json.dumps([*SYMBOLS, "a"]).encode(), "a symbol twice"),
    (FILES[0], lambda _: json.dumps(SYMBOLS[1:]).encode(), "symbol '_' is missing"),
    (FILES[1], lambda data: data[:30], "not a readable gzip file"),
    (FILES[1], lambda _: b"go\tgo\n", "not a readable gzip file"),
    (FILES[1], lambda _: gzip.compress(b"\xff"), "not a readable gzip file"),
    (FILES[1], lambda _: packed("go\tɡO\nno\n"), "line 2 is not a word"),
    (FILES[1], lambda _: packed("go\tq!\n"), "line 1 is not a word"),
    (FILES[1], lambda _: packed("go\tɡO\ngo\tɡO\n"), "line 2 holds 'go' again"),
    (FILES[1], lambda _: packed("go\tɡO\tNONSENSE=ɡO\n"), "line 1 has a form"),
    (FILES[1], lambda _: packed("go\tɡO\tVERB\n"), "line 1 has a form"),
    (FILES[2], lambda _: packed("ab\tb\n"), "line 1 is not a letter"),
    (FILES[2], lambda _: packed("a\tb\n"), "holds no model"),
    (FILES[2], lambda _: packed("a\tb\n\n0\t\t!\tā\n"), "line 3 is not a history"),
    (FILES[2], lambda _: packed("a\tb\n\n9x\t\t!\tā\t!\n"), "line 3 is not a history"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE, ids=[message for _, _, message in DAMAGE])
def test_a_damaged_file_is_named(directory: Path, name: str, damage: Callable[[bytes], bytes], message: str) -> None:
    path = directory / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=message) as caught:
        PhonemeTokenizer(ModelDirectory(directory))
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / FILES[2]).unlink()
    with pytest.raises(ModelError, match=r"letters\.tsv\.gz: missing"):
        PhonemeTokenizer(ModelDirectory(directory))


BPE_FOLDER = "CosyVoice-BlankEN"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(ModelDirectory(TINY))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(TINY / BPE_FOLDER, tmp_path / BPE_FOLDER)
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
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
    vocabulary = json.loads((TINY / BPE_FOLDER / "vocab.json").read_text(encoding="utf-8"))
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "hell")]
    vocabulary.update({left + right: 256 + place for place, (left, right) in enumerate(merges)})
    config = json.loads((TINY / BPE_FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["added_tokens_decoder"] = {str(260 + place): {"content": token} for place, token in enumerate(CONTROLS[:3])}
    (copy / BPE_FOLDER / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (copy / BPE_FOLDER / "merges.txt").write_text(
        "#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n", encoding="utf-8"
    )
    (copy / BPE_FOLDER / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = TextTokenizer(ModelDirectory(copy))
    assert tokenizer.encode("hello hello 12") == [258, ord("o"), 259, ord("o"), 32, ord("1"), ord("2")]
    assert (tokenizer.encode("[breath]"), len(tokenizer)) == ([264], 280)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_missing_file_of_bpe_is_named(copy: Path, name: str) -> None:
    (copy / BPE_FOLDER / name).unlink()
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
def test_a_corrupt_file_of_bpe_is_named(copy: Path, name: str, content: str, message: str) -> None:
    (copy / BPE_FOLDER / name).write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        TextTokenizer(ModelDirectory(copy))
