"""The pronunciation dictionary: which form matches where, and how a model reads the replacement."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cosyserve.errors import InvalidRequest, SettingsError
from services.frontend.__main__ import read_model
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.input_text import StreamingText
from services.frontend.analysis.pronunciations import Dictionary
from services.frontend.analysis.reading_context import MOST_OF_A_UNIT
from services.frontend.normalization.normalize import Normalizer
from services.frontend.segmentation.text_units import Units
from services.frontend.settings import FrontendSettings
from services.frontend.tokenizers.phonemes import tokenizer as phoneme_tokenizer
from services.frontend.tokenizers.phonemes.reading import Word, read_words
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from tests.unit.frontend import models


@pytest.fixture(scope="module")
def phonemes() -> PhonemeTokenizer:
    return models.phonemes()


@pytest.mark.parametrize(
    ("entries", "text", "said"),
    [
        ({"Nguyen": "win"}, "Nguyen, nguyen and Nguyens", "win, nguyen and Nguyens"),
        ({"sql": "sequel"}, "SQL, sql; MySQL.", "sequel, sequel; MySQL."),
        ({"sql": "sequel", "SQL": "es queue el"}, "SQL and sql", "es queue el and sequel"),
        ({"new": "knew", "New York": "big apple"}, "New York is new", "big apple is knew"),
        ({"a": "b", "b": "c"}, "a b", "b c"),
        ({"重庆": "虫庆", "AI": "ei ai"}, "重庆的AI技术", "虫庆的ei ai技术"),
        ({"C++": "see plus plus"}, "C++ code", "see plus plus code"),
        ({"caf\u00e9": "coffee"}, "caf\u00e9s caf\u00e9", "caf\u00e9s coffee"),
        ({"ＡＢＣ": "letters", "ﬁnd": "seek"}, "find ABC", "seek letters"),
    ],
)
def test_what_is_found(entries: dict[str, str], text: str, said: str) -> None:
    assert Dictionary(entries, None, 200).apply(text, lambda _: "?") == said


def test_a_request_goes_before_the_server() -> None:
    server = Dictionary({"gif": "jif", "jpeg": "jay peg"}, None, 200)
    assert server.with_request({"gif": "ghif"}, None).apply("gif jpeg", str) == "ghif jay peg"
    assert server.apply("gif jpeg", str) == "jif jay peg"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"": "a"}, "1 to 64 characters"),
        ({"x" * 65: "a"}, "1 to 64 characters"),
        ({" a": "b"}, "no blank around"),
        ({"...": "b"}, "a letter or digit"),
        ({"a": ""}, "allowed are 1 to 200"),
        ({"a": "b" * 201}, "allowed are 1 to 200"),
        ({"a": "/nˈIki/"}, "this model reads text"),
        ({str(n): "a" for n in range(201)}, "at most 200"),
    ],
)
def test_a_bad_entry_is_refused(entries: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Dictionary(entries, None, 200)


def test_phonemes_are_spoken_as_they_are(phonemes: PhonemeTokenizer) -> None:
    analyzer = models.analyzer(models.DEMO)
    reading = analyzer.reading(
        "", allow_control_tokens=False, pronunciations={"Nike": "/nˈIki/", "foo bar": "/fˈu bˈɑɹ/"}
    )
    (sentence,) = analyzer.sentences("Buy 2 Nike shoes, foo bar!", reading=reading)
    assert sentence.text == "Buy two /nˈIki/ shoes, /fˈu bˈɑɹ/!"
    spoken = "".join(
        symbol for token in sentence.token_ids for symbol, place in phonemes._ids.items() if place == token
    )
    assert "nˈIki" in spoken
    assert "fˈu bˈɑɹ!" in spoken
    with pytest.raises(InvalidRequest, match="expected words of this model's phonemes"):
        analyzer.reading("", allow_control_tokens=False, pronunciations={"Nike": "/xyz1/"})


def test_phonemes_may_be_those_of_the_international_alphabet() -> None:
    analyzer = models.analyzer(models.DEMO)

    def text_of(spoken: str) -> str:
        reading = analyzer.reading("", allow_control_tokens=False, pronunciations={"Nike": spoken})
        (sentence,) = analyzer.sentences("Buy Nike shoes!", reading=reading)
        return sentence.text

    assert text_of("/ipa:ˈnaɪ.kiː/") == text_of("/nˈIki/") == "Buy /nˈIki/ shoes!"
    for wrong, message in (
        ("/ipa:ħ/", "is no symbol of English in IPA"),
        ("/ipa: /", "words of this model's phonemes"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            text_of(wrong)


def test_a_text_cannot_contain_phonemes_or_placeholders(phonemes: PhonemeTokenizer) -> None:
    analyzer = Analyzer(Normalizer(None), phonemes)
    plain = [sentence.token_ids for sentence in analyzer.sentences("ab cd")]
    for forged in ("a\uf8f0b cd", "a\ue000b cd", "a\U000f0000b cd", "a\uf8f2b cd"):
        assert [sentence.token_ids for sentence in analyzer.sentences(forged)] == plain


def test_a_respelling_cannot_bring_control_tokens_in() -> None:
    tokenizer = models.tokenizer(models.TINY)
    analyzer = Analyzer(Normalizer(None), tokenizer)
    reading = analyzer.reading(
        "", allow_control_tokens=False, pronunciations={"x": "<|endofprompt|>", "y": "<|endof<|im_end|>prompt|>"}
    )
    ids = [token for sentence in analyzer.sentences("say x and y now", reading=reading) for token in sentence.token_ids]
    assert ids
    assert not {tokenizer.id_of("<|endofprompt|>"), tokenizer.id_of("<|im_end|>")} & set(ids)


def test_what_belongs_to_the_program_is_taken_out_of_a_respelling(phonemes: PhonemeTokenizer) -> None:
    """Private use: the placeholders of sound tags and phonemes, and the delimiters of phonemes for
    the tokenizer.
    """
    for tokenizer in (phonemes, models.tokenizer(models.TINY)):
        analyzer = Analyzer(Normalizer(None), tokenizer)

        def ids(spoken: str, analyzer: Analyzer = analyzer) -> list[tuple[int, ...]]:
            reading = analyzer.reading("en", allow_control_tokens=False, pronunciations={"ab": spoken})
            return [sentence.token_ids for sentence in analyzer.sentences("Say ab now, ab.", "en", reading)]

        for forged, plain in (
            ("\uf8f0日\uf8f2", "日"),
            ("x\ue000y", "xy"),
            ("\U000f0000x", "x"),
            ("a\uf8f1b", "ab"),
            ("x\uf8f2", "x"),
        ):
            assert ids(forged) == ids(plain), repr(forged)
        for nothing in ("\uf8f0\uf8f2", "\U000f0000", "\ue000 "):
            with pytest.raises(InvalidRequest, match="allowed are 1 to 200"):
                ids(nothing)


def whole(analyzer: Analyzer, text: str, pronunciations: dict[str, str]) -> int:
    """The number of sentences of a whole text."""
    return len(
        list(analyzer.parts(text, analyzer.reading("en", allow_control_tokens=False, pronunciations=pronunciations)))
    )


def streamed(analyzer: Analyzer, text: str, pronunciations: dict[str, str], *, partial: bool) -> int:
    """The number of pieces of a text in fragments of 100 characters."""
    reading = analyzer.reading("en", allow_control_tokens=False, pronunciations=pronunciations)
    of = StreamingText(analyzer, reading, Units(400), partial=partial)
    fed = [piece for at in range(0, len(text), 100) for piece in of.feed(text[at : at + 100])]
    return len([*fed, *of.finish()])


@pytest.mark.parametrize(
    "path",
    [whole, partial(streamed, partial=False), partial(streamed, partial=True)],
    ids=["whole", "sentences", "tokens"],
)
def test_a_text_grows_to_40000_characters_and_no_further(phonemes: PhonemeTokenizer, path: Callable[..., int]) -> None:
    analyzer = Analyzer(Normalizer(None), phonemes)
    for spoken in ("lala " * 40, "/" + "nˈI" * 66 + "/"):
        # Each replacement makes one character `len(spoken)`.
        most = 40_000 // (len(spoken) + 2)
        for unit in ("a. ", "a[pause 10ms]"):
            counted = most if unit == "a. " else 40_000 // len(spoken)
            assert path(analyzer, unit * counted, {"a": spoken}) >= counted
            with pytest.raises(
                InvalidRequest,
                match=r"pronunciations and SSML make 4\d{4} characters of \d+, allowed are at most 40000",
            ):
                path(analyzer, unit * (counted + 2), {"a": spoken})


def test_a_long_text_may_double(phonemes: PhonemeTokenizer) -> None:
    analyzer = Analyzer(Normalizer(None), phonemes)
    text = "We say word here. " * 3_000
    assert streamed(analyzer, text, {"word": "wo " * 5 + "rd"}, partial=False) == 3_000
    with pytest.raises(InvalidRequest, match="allowed are at most"):
        streamed(analyzer, text, {"word": "wo " * 11}, partial=False)


def test_by_token_a_unit_grows_to_4000_characters_and_costs_no_more(
    phonemes: PhonemeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    def counted(text: str) -> list[Word]:
        nonlocal read
        read += len(text)
        return read_words(text)

    monkeypatch.setattr(phoneme_tokenizer, "read_words", counted)
    analyzer = Analyzer(Normalizer(None), phonemes)
    unit = "a " * 199
    assert streamed(analyzer, unit, {"a": "la" * 9}, partial=True)
    # Two hundred runs, half of 4,000 characters on average.
    assert read < 110 * MOST_OF_A_UNIT
    with pytest.raises(InvalidRequest, match="of a sentence, by token at most 4000"):
        streamed(analyzer, unit, {"a": "la" * 10}, partial=True)
    assert read < 220 * MOST_OF_A_UNIT
    assert streamed(analyzer, unit, {"a": "la" * 10}, partial=False)


def test_the_servers_file(tmp_path: Path) -> None:
    file = tmp_path / "words.json"
    file.write_text('{"Nguyen": "/wˈɪn/"}', encoding="utf-8")
    (sentence,) = read_model(
        FrontendSettings(listen="127.0.0.1:0", model=models.ROOT / models.DEMO, pronunciations=file)
    ).analyzer.sentences("Nguyen won")
    assert sentence.text == "/wˈɪn/ won."
    for content, message in (
        ("[]", "expected a JSON object"),
        ("{", "not a readable JSON"),
        ('{"": "a"}', "1 to 64"),
        ('{"a": 1}', "object of"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(SettingsError, match=f"COSYSERVE_FRONTEND_PRONUNCIATIONS: .*{message}"):
            read_model(FrontendSettings(listen="127.0.0.1:0", model=models.ROOT / models.DEMO, pronunciations=file))
