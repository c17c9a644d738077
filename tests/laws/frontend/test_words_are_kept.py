"""Laws of the text path: no word is lost, in any language, however long the pieces are."""

import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.normalization.english.names import technical_names
from services.frontend.normalization.markdown import without_markdown
from services.frontend.normalization.normalize import split_for_grammar
from services.frontend.segmentation.language_spans import spans
from services.frontend.segmentation.sentence_splitter import Splitter, cut_to_limit
from services.frontend.text.characters import speakable, without_emoji
from tests.unit.frontend.models import TINY, analyzer

LETTERS = st.characters(categories=["Lu", "Ll", "Lo", "Nd"]) | st.sampled_from("aeiou中文字かなкотשלוםمرحباไทย")
WORD = st.text(LETTERS, min_size=1, max_size=12) | st.text(LETTERS, min_size=200, max_size=260)
MARK = st.sampled_from([" ", ". ", ", ", "! ", "? ", "。", "，", "؟ ", " — ", "...", "; ", '." ', "\n", "：", "।"])
TEXT = st.lists(st.tuples(WORD, MARK), max_size=30).map(lambda pairs: "".join(word + mark for word, mark in pairs))
ANYTHING = st.text(st.characters() | st.sampled_from("ab1 .*_#[]()<>|`\n-😀中。$%\ud800\x00\ue000"), max_size=200)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@settings(deadline=None, max_examples=200)
@given(TEXT, st.sampled_from(["zh", "en", "de"]))
def test_split_then_joined_are_the_words_of_the_text(text: str, language: str) -> None:
    splitter = Splitter(language, len)
    segments = [*splitter.feed(text), *splitter.finish()]
    assert words("".join(segments)) == words(text)


@settings(deadline=None, max_examples=100)
@given(TEXT)
def test_a_language_without_normaliser_passes_untouched(text: str) -> None:
    text = text.replace("://", "").replace("www", "w")
    sentences = list(analyzer(TINY).sentences(text, "de"))
    assert words("".join(sentence.text for sentence in sentences)) == words(speakable(text))
    assert all(len(sentence.token_ids) <= LONGEST_SENTENCE for sentence in sentences)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=9), min_size=1, max_size=60))
@example(["fstab", "mounts"])
def test_plain_english_words_are_spoken_as_they_are(plain: list[str]) -> None:
    plain = [word for word in plain if word not in {"vs", "etc", *technical_names.SPOKEN}] or ["word"]
    assert words("".join(sentence.text for sentence in analyzer(TINY).sentences(" ".join(plain), "en"))) == plain


@settings(deadline=None, max_examples=300)
@given(ANYTHING, st.sampled_from(["zh", "en"]))
def test_what_divides_a_text_gives_all_of_it(text: str, language: str) -> None:
    assert "".join(span.text for span in spans(text, language)) == text
    assert "".join(piece for _, piece in split_for_grammar(text, language)) == text


@settings(deadline=None, max_examples=300)
@given(ANYTHING)
@example("\r\x85")
@example("\r\x00\n")
@example("\x1b\x1b[31m[31m")
def test_taking_off_what_is_not_spoken_never_fails_and_is_done_once(text: str) -> None:
    clean = speakable(text)
    assert speakable(clean) == clean
    clean.encode()
    without_markdown(without_emoji(clean))


@settings(deadline=None, max_examples=100)
@given(ANYTHING, st.sampled_from(["", "zh", "en-GB", "ja"]))
def test_any_text_gives_sentences_that_the_model_can_take(text: str, language: str) -> None:
    for sentence in analyzer(TINY).sentences(text, language):
        assert 1 <= len(sentence.token_ids) <= LONGEST_SENTENCE
        sentence.text.encode()


@pytest.mark.parametrize(
    ("segment", "parts"),
    [
        ("one two, three four five", ["one two,", " three four", " five"]),
        ("aaaa, 1,000 bbbb", ["aaaa, 1,000", " bbbb"]),
        ("onetwothreefourfive", ["onetwothreef", "ourfive"]),
        ("一二三四五六七，八九十一二三", ["一二三四五六七，", "八九十一二三"]),
    ],
)
def test_a_long_piece_is_cut_at_the_next_best_place(segment: str, parts: list[str]) -> None:
    assert list(cut_to_limit(segment, 12, len)) == parts


@pytest.mark.parametrize(
    "unit",
    ["word ", "好", "1,000 ", "**a** ", "[x](y) ", "a.b.com/", "<b ", "$1 ", ". ", "\u0301\u0323", "|a", "- x\n", "5-"],
)
def test_long_monotony_of_any_kind_is_cut(unit: str) -> None:
    text = (unit * 20_000)[:4_000]
    assert all(len(sentence.token_ids) <= LONGEST_SENTENCE for sentence in analyzer(TINY).sentences(text))
