"""Special tokens in texts for CosyVoice3: sounds, phonemes and parts of syllables survive
normalisation and splitting, mean nothing else, and are what pronunciations become.
"""

import re
import unicodedata

import pytest

from cosyserve.errors import InvalidRequest
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import StreamingInput, parts_of
from services.frontend.segmentation.text_units import LONGEST_UNIT
from tests.unit.frontend import models


@pytest.fixture
def analyzer() -> Analyzer:
    return models.analyzer(models.TINY3)


def spoken(analyzer: Analyzer, text: str, language: str = "", **pronunciations: str) -> list[Sentence]:
    reading = analyzer.reading(language, allow_control_tokens=False, pronunciations=pronunciations)
    return [part for part in parts_of(analyzer, text, reading) if isinstance(part, Sentence)]


def said(analyzer: Analyzer, text: str, **pronunciations: str) -> str:
    return "|".join(sentence.text for sentence in spoken(analyzer, text, **pronunciations))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The reference's normaliser reads the digits of the first three.
        ("say [K][AE1][T], 25 times", "say [K][AE1][T], twenty five times."),
        ("say [HH][AH0][L][OW1] please", "say [HH][AH0][L][OW1] please."),
        ("中文[AA0]和[uā]一起，[breath]还有 3 个。", "中文[AA0]和[uā]一起，[breath]还有三个。"),
        ("高管也对报道[j][ǐ]予好评。", "高管也对报道[j][ǐ]予好评。"),
        ("[breath]", "[breath]."),
        # Case and blanks count; what is no mark stays text.
        ("[J] and [aa] and [ j ]", "[J] and [aa] and [ j ]."),
        ("[ü] or [v]", "[ü] or [v]."),
        # What Markdown writes in brackets is no mark.
        ("- [x] done. See [n](https://a.de).", "done. See n."),
    ],
)
def test_marks_survive_and_mean_nothing_else(analyzer: Analyzer, text: str, expected: str) -> None:
    assert said(analyzer, text) == expected


def test_a_mark_in_pieces_of_letters_is_composed(analyzer: Analyzer) -> None:
    text = "报道[j][ǐ]予好评。"
    assert spoken(analyzer, unicodedata.normalize("NFD", text))[0].token_ids == spoken(analyzer, text)[0].token_ids
    assert {410, 526} <= set(spoken(analyzer, text)[0].token_ids)


def test_a_mark_of_another_generation_is_text() -> None:
    text = "say [K][AE1][T] and [laughter]"
    (sentence,) = spoken(models.analyzer(models.TINY), text, "de")
    assert sentence.token_ids == (*b"say [K][AE1][T] and ", 264, *b".")
    (sentence,) = spoken(models.analyzer(models.TINY3), text, "de")
    assert sentence.token_ids == (*b"say ", 329, 283, 346, *b" and ", 264, *b".")


@pytest.mark.parametrize("limit", [0, 12])
def test_no_word_of_marks_is_cut(analyzer: Analyzer, limit: int) -> None:
    word = "[ch][óng][q][ìng]"
    text = ("的" * 7 + word) * 60
    reading = analyzer.reading("zh", allow_control_tokens=False, pronunciations={}, most_characters=limit)
    parts = [part for part in parts_of(analyzer, text, reading) if isinstance(part, Sentence)]
    assert len(parts) > 3
    assert sum(part.text.count(word) for part in parts) == 60
    assert all(len(part.token_ids) <= 200 for part in parts)


@pytest.mark.parametrize("partial", [False, True])
def test_any_fragments_give_the_same_ids(analyzer: Analyzer, partial: bool) -> None:
    text = "I say [K][AE1][T] 25 times, and gif too. Then [laughter] more."

    def ids(size: int) -> list[int]:
        reading = analyzer.reading("en", allow_control_tokens=False, pronunciations={"gif": "/JH IH1 F/"})
        stream = StreamingInput(analyzer, reading, LONGEST_UNIT, partial=partial)
        pieces = [piece for at in range(0, len(text), size) for piece in stream.feed(text[at : at + size])]
        pieces += stream.finish()
        return [each for piece in pieces if isinstance(piece, Sentence) for each in piece.token_ids]

    whole = ids(len(text))
    assert {329, 283, 346, 328, 264} <= set(whole)
    assert all(ids(size) == whole for size in (1, 3, 8))


@pytest.mark.parametrize(
    ("spoken_as", "expected"),
    [
        ("/JH IH1 F/", "a [JH][IH1][F] here."),
        ("/cmu:JH IH1 F/", "a [JH][IH1][F] here."),
        ("/ipa:ˈdʒɪf/", "a [JH][IH1][F] here."),
        ("/ji2 fu2/", "a [j][í][f][ú] here."),
        ("/pinyin:jí/", "a [j][í] here."),
        ("[JH][IH1]f", "a [JH][IH1]f here."),
        ("jiff", "a jiff here."),
    ],
)
def test_a_pronunciation_becomes_marks(analyzer: Analyzer, spoken_as: str, expected: str) -> None:
    assert said(analyzer, "a gif here", gif=spoken_as) == expected


@pytest.mark.parametrize(
    ("spoken_as", "message"),
    [
        ("/lü1/", "pronunciations['gif']: the model has no token [ǖ], which 'lü1' needs"),
        ("/QQ/", "pronunciations['gif']: the model has no token [QQ]"),
        ("[QQ]", "pronunciations['gif']: the model has no token [QQ] that may be given there"),
        ("a <|nonsense|> b", "pronunciations['gif']: the model has no token <|nonsense|> that may be given there"),
        ("<|endofprompt|>", "pronunciations['gif']: the model has no token <|endofprompt|> that may be given there"),
        ("/ipa:ʘ/", "pronunciations['gif']: 'ʘ' (U+0298) is no symbol of English in IPA"),
    ],
)
def test_a_pronunciation_without_marks_is_refused(analyzer: Analyzer, spoken_as: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        spoken(analyzer, "a gif here", gif=spoken_as)


def test_ssml_takes_the_same_sounds(analyzer: Analyzer) -> None:
    document = (
        '<speak>I say <phoneme ph="təˈmeɪtoʊ">tomato</phoneme>, <phoneme alphabet="cmu-arpabet" ph="K AE1 T">x'
        '</phoneme> and <phoneme alphabet="pinyin" ph="lü4">绿</phoneme>.</speak>'
    )
    assert said(analyzer, document) == "I say [T][AH0][M][EY1][T][OW0], [K][AE1][T] and [l][ǜ]."
    with pytest.raises(InvalidRequest, match=r"SSML, line 1, column 8: phoneme: the model has no token \[ǖ\]"):
        spoken(analyzer, '<speak><phoneme alphabet="pinyin" ph="lü1">绿</phoneme></speak>')
    reading = analyzer.reading("", allow_control_tokens=False, pronunciations={})
    (sentence,) = parts_of(analyzer, '<speak>a <phoneme alphabet="sampa" ph="x">word</phoneme></speak>', reading)
    assert isinstance(sentence, Sentence)
    assert sentence.text == "a word."
    assert reading.log is not None
    assert [warning.left_out for warning in reading.log.take()] == [("sampa x",)]


@pytest.mark.parametrize("model", [models.TINY, models.TINY3])
def test_an_unknown_control_token_is_refused_where_they_are_parsed(model: str) -> None:
    analyzer = models.analyzer(model)
    reading = analyzer.reading("", allow_control_tokens=True, pronunciations={})
    with pytest.raises(InvalidRequest, match=r"text holds <\|nonsense\|>, which is no special token of this model"):
        list(parts_of(analyzer, "a <|endofprompt|> <|nonsense|> b", reading))
    # Elsewhere none is parsed or spoken.
    assert said(analyzer, "a <|nonsense|> b").split() == ["a", "b."]
