"""The words of a text that a byte-pair tokenizer reads, with their ids."""

import pytest

from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.bpe import TextTokenizer
from tests.stacks.up_process import TINY, TINY3


@pytest.fixture(scope="module", params=[TINY, TINY3], ids=["tiny", "tiny3"])
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    return TextTokenizer(ModelDirectory(request.param))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ", []),
        ("— ...", []),
        ("[breath]", []),
        ("Hello, world!", ["Hello", "world"]),
        (" It's  fine. ", ["It's", "fine"]),
        ("a[breath]b <strong>really</strong> c", ["a", "b", "really", "c"]),
        ("A well-known U.S. law", ["A", "well", "known", "U.S", "law"]),
        ("E.g. 42 of them", ["for", "example", "forty", "two", "of", "them"]),
        ("Caf\u00e9 cafe\u0301.", ["Cafe", "cafe"]),
        ("The word 你好 means hello", ["The", "word", "你好", "means", "hello"]),
        ("你好，世界。", ["你好，世界。"]),
    ],
)
def test_words_and_their_ids(tokenizer: TextTokenizer, text: str, words: list[str]) -> None:
    found = tokenizer.spoken_words(text)
    assert [word for word, _, _ in found] == words
    ids = tokenizer.encode(text)
    assert [first for _, first, _ in found] == sorted(first for _, first, _ in found)
    assert all(0 <= first < first + count <= len(ids) for _, first, count in found)


def test_a_word_has_the_ids_that_express_it(tokenizer: TextTokenizer) -> None:
    text = "One [laughter] small step, then another."
    for word, first, count in tokenizer.spoken_words(text):
        expressed = tokenizer._plain.decode(tokenizer.encode(text)[first : first + count], skip_special_tokens=False)
        assert expressed.strip(" ,.") == word


def test_a_text_that_arrives_has_the_words_of_the_whole(tokenizer: TextTokenizer) -> None:
    whole = tokenizer.spoken_words("One small step, then another.")
    encoder, arrived, place = tokenizer.incremental_encoder(), [], 0
    for run, last in (("One small", False), (" step,", False), (" then another.", True)):
        ids, words = encoder.finish(run) if last else encoder.feed(run)
        arrived += [(word, place + first, count) for word, first, count in words]
        place += len(ids)
    assert [word for word, _, _ in arrived] == [word for word, _, _ in whole]
    assert arrived == whole


def test_a_pronunciation_in_marks_is_one_word_between_slashes() -> None:
    tokenizer = TextTokenizer(ModelDirectory(TINY3))
    text = "Say [HH][AH0][L][OW1], [breath][n][ǐ] there"
    assert [word for word, _, _ in tokenizer.spoken_words(text)] == ["Say", "/HH AH0 L OW1/", "/n ǐ/", "there"]
