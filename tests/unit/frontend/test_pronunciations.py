"""The pronunciation dictionary: which form is found where, and what a model makes of it."""

from pathlib import Path

import pytest

from cosyserve.errors import InvalidRequest, SettingsError
from cosyserve.model_directory import ModelDirectory
from services.frontend.__main__ import read_model
from services.frontend.analysis import Analyzer
from services.frontend.normalize import Normalizer
from services.frontend.phonemes.tokenizer import PhonemeTokenizer
from services.frontend.pronunciations import Dictionary
from services.frontend.settings import FrontendSettings
from services.frontend.tokenizer import TextTokenizer
from services.frontend.wetext_package import WeText

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def phonemes() -> PhonemeTokenizer:
    return PhonemeTokenizer(ModelDirectory(ROOT / "models/demo"))


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
    ],
)
def test_what_is_found(entries: dict[str, str], text: str, said: str) -> None:
    assert Dictionary(entries, None, 200).apply(text, lambda _: "?") == said


def test_a_request_goes_before_the_server() -> None:
    server = Dictionary({"gif": "jif", "jpeg": "jay peg"}, None, 200)
    both = server.with_request({"gif": "ghif"}, None)
    assert both.apply("gif jpeg", str) == "ghif jay peg"
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
    analyzer = Analyzer(Normalizer(WeText()), phonemes)
    reading = analyzer.reading("", allow_control_tokens=False, pronunciations={"Nike": "/nˈIki/", "foo bar": "/fˈu bˈɑɹ/"})
    (sentence,) = analyzer.sentences("Buy 2 Nike shoes, foo bar!", reading=reading)
    assert sentence.text == "Buy two /nˈIki/ shoes, /fˈu bˈɑɹ/!"
    spoken = "".join(symbol for token in sentence.token_ids for symbol, place in phonemes._ids.items() if place == token)
    assert "nˈIki" in spoken
    assert "fˈu bˈɑɹ!" in spoken
    with pytest.raises(InvalidRequest, match="expected words of this model's phonemes"):
        analyzer.reading("", allow_control_tokens=False, pronunciations={"Nike": "/xyz1/"})


def test_a_text_cannot_bring_phonemes_or_carriers_in(phonemes: PhonemeTokenizer) -> None:
    analyzer = Analyzer(Normalizer(None), phonemes)
    plain = [sentence.token_ids for sentence in analyzer.sentences("ab cd")]
    for forged in ("a\uf8f0b cd", "a\ue000b cd", "a\U000f0000b cd", "a\uf8f2b cd"):
        assert [sentence.token_ids for sentence in analyzer.sentences(forged)] == plain


def test_a_respelling_cannot_bring_control_tokens_in() -> None:
    tokenizer = TextTokenizer(ModelDirectory(ROOT / "tests/golden/tiny"))
    analyzer = Analyzer(Normalizer(None), tokenizer)
    reading = analyzer.reading("", allow_control_tokens=False, pronunciations={"x": "<|endofprompt|>", "y": "<|endof<|im_end|>prompt|>"})
    ids = [token for sentence in analyzer.sentences("say x and y now", reading=reading) for token in sentence.token_ids]
    assert ids
    assert not {tokenizer.id_of("<|endofprompt|>"), tokenizer.id_of("<|im_end|>")} & set(ids)


def test_the_servers_file(tmp_path: Path) -> None:
    file = tmp_path / "words.json"
    file.write_text('{"Nguyen": "/wˈɪn/"}', encoding="utf-8")
    analyzer = read_model(FrontendSettings(listen="127.0.0.1:0", model=ROOT / "models/demo", pronunciations=file)).analyzer
    (sentence,) = analyzer.sentences("Nguyen won")
    assert sentence.text == "/wˈɪn/ won."
    for content, message in (
        ("[]", "expected a JSON object"),
        ("{", "not a readable JSON"),
        ('{"": "a"}', "1 to 64"),
        ('{"a": 1}', "object of"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(SettingsError, match=f"COSYSERVE_FRONTEND_PRONUNCIATIONS: .*{message}"):
            read_model(FrontendSettings(listen="127.0.0.1:0", model=ROOT / "models/demo", pronunciations=file))
