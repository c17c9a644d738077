"""A text that is still being written: final ids are emitted early, none is revoked, none depends on
the fragmentation; and its language, by tag and by script: text without letters is read in the
preceding language, wherever the text is cut and whichever call continues it.
"""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import Piece, StreamingText
from services.frontend.analysis.prepared_text import Reading
from services.frontend.segmentation.language_spans import language_by_script
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units
from services.frontend.text.language import language_of
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS, START
from tests.unit.frontend.models import MODELS, analyzer, tokenizer

PLAIN = (
    "She said that she would read the letter to an old friend.", "I used to live near the ocean, where apples grow.",
    "The quick brown fox jumps over a lazy dog and then it rests.",
    "Don't you know the way to the house of the artist?",
)  # fmt: skip
ALPHABET = st.sampled_from([*"ab.?! ,'\n5$，。你好e\u0301👩\u200d", "the ", "Dr. ", "word ", "3.5 ", "May "])


def pieces(model: str, fragments: list[str], reading: Reading) -> list[Sentence | Pause]:
    text = StreamingText(analyzer(model), reading, Units(400), partial=True)
    result = [piece for fragment in fragments for piece in text.feed(fragment)] + list(text.finish())
    return [piece for piece in result if isinstance(piece, Sentence | Pause)]


def parts(
    model: str, fragments: list[str], language: str = "", pronunciations: dict[str, str] | None = None
) -> list[Sentence]:
    reading = analyzer(model).reading(language, allow_control_tokens=False, pronunciations=pronunciations or {})
    return [piece for piece in pieces(model, fragments, reading) if isinstance(piece, Sentence)]


def complete(result: list[Sentence]) -> list[tuple[tuple[int, ...], list[tuple[str, int, int]]]]:
    """The ids of each sentence, and its words with indices into all its ids."""
    ended, ids, spans = [], list[int](), list[tuple[str, int, int]]()
    for part in result:
        ids, spans = [*ids, *part.token_ids], [*spans, *part.words]
        if not part.unfinished:
            ended.append((tuple(ids), spans))
            ids, spans = [], []
    assert not ids, "the last sentence is never ended"
    return ended


def sentences(result: list[Sentence]) -> list[tuple[int, ...]]:
    return [ids for ids, _ in complete(result)]


def words(result: list[Sentence]) -> list[list[tuple[str, int, int]]]:
    return [spans for _, spans in complete(result)]


@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=150)
@given(
    st.lists(ALPHABET, max_size=60).map("".join),
    st.lists(st.integers(0, 200), max_size=8),
    st.sampled_from(["", "zh", "en", "de"]),
)
def test_any_cutting_gives_the_same_sentences(model: str, text: str, cuts: list[int], language: str) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    whole = complete(parts(model, [text], language))
    for fragments in ([text[a:b] for a, b in itertools.pairwise(borders)], list(text)):
        assert complete(parts(model, fragments, language)) == whole
    assert all(0 < len(ids) <= LONGEST_SENTENCE for ids, _ in whole)


@settings(deadline=None, max_examples=150)
@given(st.lists(ALPHABET, max_size=60).map("".join))
def test_words_cover_the_sounds_of_their_sentence_in_order(text: str) -> None:
    silent = {tokenizer(MODELS[0]).id_of(symbol) for symbol in START + MARKS + BLANK}
    for ids, spans in complete(parts(MODELS[0], list(text), "en")):
        covered = [place for _, first, count in spans for place in range(first, first + count)]
        assert covered == [place for place, token_id in enumerate(ids) if token_id not in silent]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_have_the_ids_and_words_of_the_whole(model: str, text: str) -> None:
    (whole,) = analyzer(model).sentences(text)
    assert complete(parts(model, list(text))) == [(whole.token_ids, list(whole.words))]


def test_words_leave_with_the_ids_that_say_them() -> None:
    place = 0
    for part in parts(MODELS[0], list(PLAIN[0])):
        assert all(place <= first and first + count <= place + len(part.token_ids) for _, first, count in part.words)
        place += len(part.token_ids)


def test_a_run_of_numbers_is_cut_between_two_of_its_words() -> None:
    """No part of it may be normalised by itself, so all of it comes at once."""
    result = parts(MODELS[0], ["7 " * 150], "en")
    ids, spans = sentences(result), words(result)
    assert len(ids) > 1
    assert all(len(each) <= LONGEST_SENTENCE for each in ids)
    assert [word for each in spans for word, _, _ in each] == ["seven"] * 150
    (seven,) = {
        each[first : first + count] for each, found_in in zip(ids, spans, strict=True) for _, first, count in found_in
    }
    assert all(each[1 : 1 + len(seven)] == seven for each in ids)


def test_a_word_that_is_longer_than_a_sentence_ends_with_it() -> None:
    result = parts(MODELS[0], ["Well Nike."], "en", {"Nike": "/" + "nI" * 99 + "/"})
    assert [word for word, _, _ in words(result)[0]] == ["Well"]
    for ids, spans in complete(result):
        assert all(first + count <= len(ids) for _, first, count in spans)


@pytest.mark.parametrize(("model", "behind"), [(MODELS[0], 3), (MODELS[1], 1)])
def test_a_word_is_emitted_when_the_following_words_decide_it(model: str, behind: int) -> None:
    """BPE: the next word. Phonemes: the next word, and two that may change its pronunciation."""
    words = ["seven", "little", "ducks", "swim", "over", "there"]
    text = StreamingText(analyzer(model), Reading("en"), Units(400), partial=True)
    assert [bool(list(text.feed(word + " "))) for word in words] == [place >= behind for place in range(len(words))]


@pytest.mark.parametrize(
    "text",
    [
        "We paid $5 million for it in May 2024, you know.",
        "Please read the [page about little ducks](https://example.org/x) before you go there.",
    ],
    ids=["numbers wait for their neighbours", "the address of a link is not spoken"],
)
def test_what_is_not_plain_has_the_ids_of_the_whole(text: str) -> None:
    (whole,) = analyzer(MODELS[0]).sentences(text, "en")
    assert sentences(parts(MODELS[0], list(text), "en")) == [whole.token_ids]


@pytest.mark.parametrize("model", MODELS)
def test_a_sentence_without_end_is_ended_at_the_models_limit(model: str) -> None:
    result = sentences(parts(model, ["extraordinary " * 28 + "x" * 300]))
    assert len(result) > 1
    assert all(len(ids) <= LONGEST_SENTENCE for ids in result)


@pytest.mark.parametrize("text", ["", " ", "...", "👩‍👩‍👧 !"])
def test_nothing_to_speak_is_no_sentence(text: str) -> None:
    assert parts(MODELS[0], [text]) == []


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_pause_comes_between_the_sentences_around_it(size: int) -> None:
    text = "[pause 1s] We went home[pause 300ms]and then <break time='0.2s'/> we slept. Good [pause 20ms]"
    result = pieces(MODELS[0], [text[at : at + size] for at in range(0, len(text), size)], Reading("en"))
    assert [
        piece.milliseconds if isinstance(piece, Pause) else 0
        for piece in result
        if isinstance(piece, Pause) or not piece.unfinished
    ] == [1000, 0, 300, 0, 200, 0, 0, 20]
    words = ("We went home", "and then", "we slept.", "Good")
    assert sentences([piece for piece in result if isinstance(piece, Sentence)]) == [
        sentence.token_ids for text in words for sentence in analyzer(MODELS[0]).sentences(text, "en")
    ]


@pytest.mark.parametrize("written", ["Take", "New York", "new york city", "old New York City"])
def test_a_pronunciation_is_found_over_the_words_that_it_spans(written: str) -> None:
    text = "Take a Nike to old New York City and to New Jersey today."
    given = {written: "/nˈIki/"}
    reading = analyzer(MODELS[0]).reading("en", allow_control_tokens=False, pronunciations=given)
    (whole,) = analyzer(MODELS[0]).sentences(text, "en", reading)
    assert whole.token_ids != next(analyzer(MODELS[0]).sentences(text, "en")).token_ids
    assert sentences(parts(MODELS[0], list(text), "en", given)) == [whole.token_ids]


PIECES = (
    "今天",
    "很好",
    "。",
    "123。",
    " 45. ",
    "Then we left",
    "iPhone 15",
    "word ",
    "! ",
    "Привет",
    "これは",
    "[pause 50ms]",
    "😀",
    "，",
    "3 ",
)
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def written(model: str, *, partial: bool, last_language: str = "", code: str = "") -> StreamingText:
    reading = analyzer(model).reading(code, allow_control_tokens=False, pronunciations={})
    return StreamingText(analyzer(model), reading, Units(400), partial=partial, last_language=last_language)


def spoken(pieces: list[Piece], *, partial: bool) -> list[object]:
    """The speech of `pieces`: parts joined to sentences."""
    if not partial:
        return list(pieces)
    joined, ids = list[object](), list[int]()
    for piece in pieces:
        ids += getattr(piece, "token_ids", ())
        if not getattr(piece, "unfinished", False):
            joined.append((tuple(ids), getattr(piece, "milliseconds", 0)))
            ids = []
    return joined


def texts(fragments: list[str], code: str = "") -> list[tuple[str, str]]:
    text = written(MODELS[1], partial=False, code=code)
    pieces = [piece for fragment in fragments for piece in text.feed(fragment)] + list(text.finish())
    return [(piece.language, piece.text.strip()) for piece in pieces if isinstance(piece, Sentence)]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("今天很好。123。再见。", [("zh", "今天很好。"), ("zh", "一百二十三。"), ("zh", "再见。")]),
        (
            "We left. 123. 今天。45。",
            [("en", "We left."), ("en", "one hundred and twenty three."), ("zh", "今天。"), ("zh", "四十五。")],
        ),
        ("我买了手机。iPhone 15。很好。", [("zh", "我买了手机。"), ("zh", "iPhone十五。"), ("zh", "很好。")]),
        ("今天。I have 3 apples. 45!", [("zh", "今天。"), ("en", "I have three apples."), ("en", "forty five!")]),
        ("Привет. 12. ", [("und", "Привет."), ("und", "12.")]),
        ("123！今天。", [("zh", "一百二十三！"), ("zh", "今天。")]),
        ("123! 今天。", [("en", "one hundred and twenty three!"), ("zh", "今天。")]),
        ("今天[pause 1s]12[pause 1s]", [("zh", "今天。"), ("zh", "十二。")]),
    ],
)
def test_digits_are_read_in_the_language_before_them(text: str, spoken: list[tuple[str, str]]) -> None:
    assert texts([text]) == spoken == texts(list(text))


def test_a_language_code_decides_alone() -> None:
    assert texts(["今天很好。123. "], code="en")[-1] == ("en", "one hundred and twenty three.")
    text = written(MODELS[1], partial=False, code="zh")
    assert list(text.feed("Hello there. x"))
    assert text.last_language == ""


@pytest.mark.parametrize(
    ("first", "text", "said"),
    [
        ("今天很好。", "123。", "一百二十三。"),
        ("今天很好。", "iPhone 15。", "iPhone十五。"),
        ("We left.", " 123.", "one hundred and twenty three."),
        ("今天很好。", "Hello there, my 2 friends.", "Hello there, my two friends."),
    ],
)
def test_by_token_a_unit_without_letters_is_read_like_the_one_before(first: str, text: str, said: str) -> None:
    of = written(MODELS[1], partial=True)
    assert spoken([*of.feed(first + text), *of.finish()], partial=True)[-1] == (tuple(said.encode()), 0)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("model", MODELS)
@settings(deadline=None, max_examples=120)
@given(TEXT, st.lists(st.integers(0, 150), max_size=6))
@example("今天。12[pause 50ms] 45。Then we left. 3 ", [1, 4, 9])
def test_any_cutting_and_any_taking_over_give_the_same(model: str, partial: bool, text: str, cuts: list[int]) -> None:
    whole = written(model, partial=partial)
    expected = spoken([*whole.feed(text), *whole.finish()], partial=partial)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    cut = written(model, partial=partial)
    pieces = [piece for start, end in itertools.pairwise(borders) for piece in cut.feed(text[start:end])]
    assert spoken([*pieces, *cut.finish()], partial=partial) == expected
    for border in borders:
        first = written(model, partial=partial)
        # The sentences of the open unit are sent again.
        settled = spoken(list(first.feed(text[:border])), partial=partial)
        second = written(model, partial=partial, last_language=first.last_language)
        assert settled + spoken([*second.feed(text[first.settled :]), *second.finish()], partial=partial) == expected


@pytest.mark.parametrize(
    ("text", "before", "language"),
    [
        ("123. 😀", "", ""),
        ("123.", "zh", "zh"),
        ("iPhone 15", "", "en"),
        ("iPhone 15", "zh", "zh"),
        ("NASA 15", "ja", "ja"),
        ("I am 15", "zh", "en"),
        ("世界 15", "en", "zh"),
        ("Привет", "zh", "und"),
        ("12", "", ""),
        ("hello", "", "en"),
        ("hello 世界", "", "zh"),
        ("これは本です", "", "ja"),
        ("鲜の每日早餐", "", "zh"),
        ("안녕하세요", "", "ko"),
        ("Привет", "", "und"),
        ("Привет, I have many apples", "", "en"),
    ],
)
def test_language_by_script_after_another(text: str, before: str, language: str) -> None:
    assert language_by_script(text, before) == language


def test_a_single_word_of_a_sentence_by_token_has_others_around_it() -> None:
    assert language_by_script(" Hello", "zh", whole_unit=False) == "en"
    assert language_by_script(" 15", "zh", whole_unit=False) == "zh"


def test_in_a_whole_text_what_follows_is_known() -> None:
    parts = analyzer(MODELS[1]).parts("12[pause 1s]今天。[pause 1s]45")
    assert [(part.language, part.text) for part in parts if isinstance(part, Sentence)] == [
        ("zh", "十二。"),
        ("zh", "今天。"),
        ("zh", "四十五。"),
    ]


@pytest.mark.parametrize(
    ("code", "text", "language"),
    [
        ("", "hello", "en"),
        ("", "hello 中", "zh"),
        ("", "ひらがな", "en"),
        ("", "2024", "en"),
        ("en-US", "中文", "en"),
        ("EN", "x", "en"),
        ("zh", "hello", "zh"),
        ("zh-Hant-TW", "x", "zh"),
        ("cmn-Hans-CN", "x", "zh"),
        ("de-DE", "x", "de-DE"),
        ("ja", "x", "ja"),
        ("sl-rozaj-biske", "x", "sl-rozaj-biske"),
        ("de-CH-1996", "x", "de-CH-1996"),
        ("x-private", "x", "x-private"),
    ],
)
def test_language(code: str, text: str, language: str) -> None:
    assert language_of(code, text) == language


@pytest.mark.parametrize(
    "code", ["zh_CN", "english language", "e", "en-", "-en", "中文", "en-US\n", "en" + "-abcde" * 20, "12"]
)
def test_what_is_no_tag_is_refused(code: str) -> None:
    with pytest.raises(InvalidRequest, match="BCP-47"):
        language_of(code, "hello")
