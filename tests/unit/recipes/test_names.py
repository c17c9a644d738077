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
    lexicon = read_lexicon(MODEL / "phonemes/lexicon.tsv.gz")
    names = read_names(NAMES)
    assert len(names) > 500
    for name, sound, only in names:
        reading = lexicon.get(name) if only or name in lexicon else lexicon.get(name.lower())
        assert reading == sound, name
    # Another word, which keeps its own sound.
    assert lexicon.get("basil") is not None


def test_names_are_found_in_any_capitals() -> None:
    tokenizer = PhonemeTokenizer(ModelDirectory(MODEL))
    assert tokenizer.phonemes("I met Siobhan.") == tokenizer.phonemes("I met siobhan.") == "ˌI mˈɛt ʃəvˈɔn."
    assert tokenizer.phonemes("Ask Siobhán") == "ˈæsk ʃəvˈɔn."


@pytest.mark.parametrize("line", ["Two Words\tˈA", "Name\t", "Name\tˈA\tother", "Name\tq?"])
def test_a_line_that_is_no_name_is_told_with_its_number(line: str, tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text(f"Anna\tˈænə\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"names\.tsv: line 2 "):
        read_names(path)


def test_a_name_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text("Anna\tˈænə\nAnna\tˈɑnə\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2 holds 'Anna' again"):
        read_names(path)


def test_replies_are_kept_for_training_and_always_the_same() -> None:
    candidates = list(replies(REPLIES))
    assert len(candidates) == REPLIES
    assert candidates == list(replies(REPLIES))
    tokenizer = PhonemeTokenizer(ModelDirectory(MODEL))
    chosen = [line.text for line in choose(candidates, ["Not yet. Of course."], tokenizer)]
    assert len(chosen) > 0.6 * REPLIES
    assert {"No.", "Why not?", "B.", "No, no, no."} <= set(chosen)
    assert sum(len(text.split()) < 3 for text in chosen) > 100


def test_what_is_short_and_no_reply_is_not_trained_on() -> None:
    tokenizer = PhonemeTokenizer(ModelDirectory(MODEL))
    assert [line.text for line in choose(["Go home", "Go home."], [], tokenizer)] == ["Go home."]
