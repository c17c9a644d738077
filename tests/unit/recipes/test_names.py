"""The list of names, and the lexicon of the bundled voice that is made with it."""

from pathlib import Path

import pytest

from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.prepare_text import REPLIES, choose
from recipes.demo_voice.text.pronunciations import NAMES, read_names
from recipes.demo_voice.text.replies import replies
from services.frontend.tokenizers.phonemes.lexicon import read_lexicon
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer

MODEL = Path(__file__).parents[3] / "models" / "demo"


def test_the_bundled_lexicon_says_every_name_as_the_list_does() -> None:
    words = read_lexicon(MODEL / "phonemes/lexicon.tsv.gz").words
    names = read_names(NAMES)
    assert len(names) > 500
    for name, sound, only in names:
        assert (words.get(name) if only or name in words else words.get(name.lower())) == sound, name
    # Another word, which keeps its own sound.
    assert words.get("basil") is not None


@pytest.fixture(scope="module")
def tokenizer() -> PhonemeTokenizer:
    return PhonemeTokenizer(ModelDirectory(MODEL))


def test_names_are_found_in_any_capitals(tokenizer: PhonemeTokenizer) -> None:
    assert tokenizer.phonemes("I met Siobhan.") == tokenizer.phonemes("I met siobhan.") == "ˌI mˈɛt ʃəvˈɔn."
    assert tokenizer.phonemes("Ask Siobhán") == "ˈæsk ʃəvˈɔn."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((line, "is not a name") for line in ("Two Words\tˈA", "Name\t", "Name\tˈA\tother", "Name\tq?")),
        ("Anna\tˈɑnə", "holds 'Anna' again"),
    ],
)
def test_a_malformed_or_repeated_name_is_an_error_that_names_its_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text(f"Anna\tˈænə\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"names\.tsv: line 2 {message}"):
        read_names(path)


def test_replies_are_kept_for_training_and_always_the_same(tokenizer: PhonemeTokenizer) -> None:
    candidates = list(replies(REPLIES))
    assert len(candidates) == REPLIES
    assert candidates == list(replies(REPLIES))
    chosen = [line.text for line in choose(candidates, ["Not yet. Of course."], tokenizer)]
    assert len(chosen) > 0.6 * REPLIES
    assert {"No.", "Why not?", "B.", "No, no, no."} <= set(chosen)
    assert sum(len(text.split()) < 3 for text in chosen) > 100


def test_what_is_short_and_no_reply_is_not_trained_on(tokenizer: PhonemeTokenizer) -> None:
    assert [line.text for line in choose(["Go home", "Go home."], [], tokenizer)] == ["Go home."]
