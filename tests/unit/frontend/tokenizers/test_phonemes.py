"""Text to phonemes with the bundled lexicon; a letter is set apart from a word that would run into
it, and from no other.
"""

import json
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.tokenizers.phonemes.reading import end_sentence, read_words
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS, SYMBOLS
from services.frontend.tokenizers.phonemes.tokenizer import FILES, PhonemeTokenizer
from services.frontend.tokenizers.placeholders import CONTROLS, MARKUP
from tests.unit.frontend import models

DEMO = models.ROOT / models.DEMO


@pytest.fixture(scope="module")
def tokenizer() -> PhonemeTokenizer:
    return models.phonemes()


def test_a_sentence_is_a_start_phonemes_and_a_full_stop(tokenizer: PhonemeTokenizer) -> None:
    assert "".join(SYMBOLS[number] for number in tokenizer.encode("Hello, big world")) == "^həlˈO, bˈɪɡ wˈɜɹld."
    assert [tokenizer.id_of(symbol) for symbol in "^ ."] == [1, 2, 6]
    assert tokenizer.id_of("<|im_end|>") is None
    assert len(tokenizer) == len(SYMBOLS) == 67


def test_the_files_are_small() -> None:
    assert sum((DEMO / name).stat().st_size for name in FILES) < 3_000_000
    assert json.loads((DEMO / FILES[0]).read_text(encoding="utf-8")) == list(SYMBOLS)


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Have you read it? I will read it.", "hæv ju ɹˈɛd ɪt? ˌI wɪl ɹˈid ɪt."),
        ("I read it yesterday.", "ˌI ɹˈɛd ɪt jˈɛstəɹdˌA."),
        ("We live in a live show.", "wi lˈɪv ɪn ɐ lˈIv ʃˈO."),
        ("Please record the record.", "plˈiz ɹəkˈɔɹd ðə ɹˈɛkəɹd."),
        ("I object to that object.", "ˌI əbʤˈɛkt tə ðæt ˈɑbʤəkt."),
        ("Present the present.", "pɹizˈɛnt ðə pɹˈɛzᵊnt."),
        ("Close the door, it is close to me.", "klˈOz ðə dˈɔɹ, ɪt ɪz klˈOs tə mˌi."),
        ("I used to use it, it is of no use.", "ˌI jˈust tə jˈuz ɪt, ɪt ɪz ʌv nˈO jˈus."),
        ("She lives here, with nine lives.", "ʃi lˈɪvz hˈɪɹ, wɪð nˈIn lˈIvz."),
        ("The lead pipe will lead.", "ðə lˈɛd pˈIp wɪl lˈid."),
        # Weak words follow the next sound.
        ("The apple, the pear.", "ði ˈæpᵊl, ðə pˈɛɹ."),
        ("To eat, to see, where to?", "tʊ ˈit, tə sˈi, wˌɛɹ tu?"),
        ("A plan. Plan A.", "ɐ plˈæn. plˈæn ˈA."),
        ("I am. Am I?", "ˌI ˈæm. ɐm ˈI?"),
        # The dictionaries stress these too weakly: the model speaks `ˈʌh` as "ah", and an `or`
        # without any stress may last 40 ms.
        ("Ugh! Tea or coffee?", "ˈʌɡ! tˈi ˌɔɹ kˈɔfi?"),
        # Letters by name.
        ("the FBI", "ði ˌɛfbˌiˈI."),
        ("NASA", "nˈæsə."),
        ("xkcd", "ˌɛkskˌAsˌidˈi."),
        ("an HTTPS page", "ɐn ˌAʧtˌitˌipˌiˈɛs pˈAʤ."),
        # Most words of a short reply may be acronyms: that is no shouting.
        ("GPU or HDMI?", "ʤˌipˌijˈu ˌɔɹ ˌAʧdˌiˌɛmˈI?"),
        ("The RAM and a ram", "ðə ɹˈæm ænd ɐ ɹˈæm."),
    ],
)
def test_words_by_their_neighbours_and_their_letters(tokenizer: PhonemeTokenizer, text: str, phonemes: str) -> None:
    assert tokenizer.phonemes(text) == phonemes


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("It's 3.5% of 1,234.", "it's three point five percent of one thousand two hundred and thirty four."),
        ("$12.50 & £1", "twelve dollars fifty cents and one pound."),
        ("At 9:05, on May 21st, 1999.", "at nine oh five, on May twenty first, nineteen ninety nine."),
        ("007", "zero zero seven."),
        ("me@home + you", "me at home plus you"),
        ("Dr. Jones and Mr. Smith", "doctor Jones and mister Smith"),
        ("Main St. is near Elm Dr.", "Main Street is near Elm Drive."),
        ("state-of-the-art", "state of the art"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ！", "full width!"),
        ("one... two -- three..", "one… two— three."),
        ("at nine PM., was it etc., or", "at nine PM, was it etc, or"),
        ("wait?! (no) [yes]", "wait? no, yes."),
        ("‘quoted’ “words”", "quoted words"),
        ("soft\u00adhyphen and z\u200bero width", "softhyphen and zero width"),
        ("THIS IS ALL IN CAPITALS", "this is all in capitals"),
        ("it does NOT work", "it does not work"),
        ("cafe\u0301", "café"),
        ("the U.S. army", "the US army"),
    ],
)
def test_what_sounds_alike(tokenizer: PhonemeTokenizer, text: str, same: str) -> None:
    assert tokenizer.phonemes(text) == tokenizer.phonemes(same) != ""


def test_endings_of_words_that_no_lexicon_has(tokenizer: PhonemeTokenizer) -> None:
    stem, name, past = (tokenizer.phonemes(word).rstrip(".") for word in ("blorpat", "blorpat's", "zwibbled"))
    assert name == f"{stem}s"
    assert past.endswith("d")
    assert tokenizer.unknown_words("The blorpat's dogs'") == ["blorpat's"]


def test_marks_of_sound_and_controls(tokenizer: PhonemeTokenizer) -> None:
    assert tokenizer.encode("".join(MARKUP)) == []
    assert tokenizer.encode("good[laughter]day") == tokenizer.encode("good day")
    for token in CONTROLS:
        assert tokenizer.encode(token, allow_special=True) == []
        assert tokenizer.encode(token) == tokenizer.encode(token.strip("<|>").replace("_", " ")) != []


@pytest.mark.parametrize("text", ["", " \n", "...", "你好，世界。", "Привет", "😀", '"(!)"', "''", "\x00"])
def test_nothing_to_speak(tokenizer: PhonemeTokenizer, text: str) -> None:
    assert (tokenizer.encode(text), tokenizer.phonemes(text)) == ([], "")


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text(alphabet="abeinrst'AS.,!?-…$%/:10 \t(<|>[]é"))
def test_any_text_gives_a_sentence_or_nothing(tokenizer: PhonemeTokenizer, text: str) -> None:
    phonemes = tokenizer.phonemes(text)
    assert tokenizer.encode(text) == ([1, *(SYMBOLS.index(symbol) for symbol in phonemes)] if phonemes else [])
    if phonemes:
        assert phonemes[-1] in ".!?…"
        assert phonemes == " ".join(phonemes.split(" "))
        assert all(word.strip("ˈˌ.,;:!?—…") for word in phonemes.split(" "))


PIECES = [
    "x",
    "ba",
    "1",
    "1,",
    "'",
    "x's",
    ".",
    "a.",
    "- ",
    "好",
    "e\u0301",
    "Word. ",
    "[",
    "$1",
    "A",
    ",111",
    "1,111,",
]


@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_take_no_longer_for_each_letter(tokenizer: PhonemeTokenizer, piece: str) -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        tokenizer.encode(piece * count)
        return time.process_time() - began

    # Thirty-two times the length may take thirty-two times as long, and a thousand times if the
    # work is quadratic. The minimum of three, since a garbage collection of the whole test process
    # may fall into one.
    longer = min(seconds(16_000) for _ in range(3))
    assert longer < 250 * max(min(seconds(500) for _ in range(3)), 5e-4)


def test_threads_do_not_disturb_each_other(tokenizer: PhonemeTokenizer) -> None:
    texts = [f"The blorp{letter}mate of {letter}ingford sang." for letter in "abcdefghijklmnop"]
    expected = [PhonemeTokenizer.encode(tokenizer, text) for text in texts]
    result: list[list[list[int]]] = []
    threads = [
        threading.Thread(target=lambda: result.append([tokenizer.encode(text) for text in texts])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == [expected] * 4


def test_the_analyzer_drops_what_cannot_be_spoken(tokenizer: PhonemeTokenizer) -> None:
    analyzer = Analyzer(Normalizer(None), tokenizer)
    assert list(analyzer.sentences("你好，世界。")) == []
    assert list(analyzer.sentences("好" * 3000)) == []
    (sentence,) = analyzer.sentences("[laughter] Hi there.", "en")
    assert list(sentence.token_ids) == tokenizer.encode("Hi there.")


@pytest.mark.parametrize(
    "text", ["to " * 900, "I am in a " * 300, "x" * 3000, "antidisestablishmentarianism " * 90, "& " * 900]
)
def test_no_sentence_is_too_long(tokenizer: PhonemeTokenizer, text: str) -> None:
    for sentence in Analyzer(Normalizer(None), tokenizer).sentences(text, "en"):
        assert 1 <= len(sentence.token_ids) <= LONGEST_SENTENCE


@pytest.mark.parametrize(
    ("text", "mark"),
    [("hi there", "."), ("hi there,", "."), ("hi there:", "."), ("hi there!", "!"), ("hi there...", "…")],
)
def test_the_last_word_ends_a_sentence(text: str, mark: str) -> None:
    words = read_words(text)
    before = list(words)
    assert [word.mark for word in end_sentence(words)] == ["", mark]
    assert words == before
    assert end_sentence([]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It works.", ["It", "works"]),
        (
            "Well, it costs $12.50: 42 apples!",
            ["Well", "it", "costs", "twelve", "dollars", "fifty", "cents", "forty", "two", "apples"],
        ),
        ("The U.S. Army - e.g. here...", ["The", "U.S", "Army", "for", "example", "here"]),
        ("don't 'quote' it", ["don't", "'quote'", "it"]),
    ],
)
def test_words_are_reported_as_they_are_spoken(tokenizer: PhonemeTokenizer, text: str, words: list[str]) -> None:
    assert [word for word, _, _ in tokenizer.spoken_words(text)] == words


@pytest.mark.parametrize(
    ("text", "allowed", "words"),
    [
        ("Buy [laughter] <strong>Nike</strong> shoes.", False, ["Buy", "/nˈIki/", "shoes"]),
        ("Nike, New York!", False, ["/nˈIki/", "/nˈu/", "/jˈɔɹk/"]),
        ("Go <|endofprompt|> there.", True, ["Go", "there"]),
        ("Go <|endofprompt|> there.", False, ["Go", "there"]),
    ],
)
def test_words_of_an_analysed_sentence_cover_its_ids(
    tokenizer: PhonemeTokenizer, text: str, allowed: bool, words: list[str]
) -> None:
    analyzer = Analyzer(Normalizer(None), tokenizer)
    given = {"Nike": "/nˈIki/", "New York": "/nˈu jˈɔɹk/"}
    (sentence,) = analyzer.sentences(text, "", analyzer.reading("", allow_control_tokens=allowed, pronunciations=given))
    assert [word for word, _, _ in sentence.words] == words
    names = {tokenizer.id_of(symbol) for symbol in MARKS + BLANK}
    covered = {place for _, first, count in sentence.words for place in range(first, first + count)}
    sounding = {place for place, number in enumerate(sentence.token_ids) if place and number not in names}
    assert covered == sounding


@pytest.mark.parametrize(
    "text", ["It works.", "Well, it costs $12.50: 42 apples!", "The U.S. Army - e.g. here... yes; no?", "A", "", "…"]
)
def test_their_ids_are_all_sounds_and_cover_them_all(tokenizer: PhonemeTokenizer, text: str) -> None:
    names = {tokenizer.id_of(symbol): symbol for symbol in MARKS + BLANK}
    ids, covered = tokenizer.encode(text), set[int]()
    for _, first, count in tokenizer.spoken_words(text):
        places = range(first, first + count)
        assert count >= 1
        assert covered.isdisjoint(places)
        covered.update(places)
    rest = [place for place in range(1, len(ids)) if place not in covered]
    assert all(ids[place] in names for place in rest)
    assert max(covered, default=0) < max(len(ids), 1)


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Open page E.", "ˈOpᵊn pˈAʤ; ˈi."),
        ("Find gate F now.", "fˈInd ɡˈAt; ˈɛf nˈW."),
        ("Find gate C now.", "fˈInd ɡˈAt; sˈi nˈW."),
        ("Bus A, please.", "bˈʌs; ˈA, plˈiz."),
        ("Seat 12 A.", "sˈit twˈɛlv; ˈA."),
    ],
)
def test_a_letter_behind_a_consonant_has_a_pause_before_it(
    tokenizer: PhonemeTokenizer, text: str, phonemes: str
) -> None:
    assert tokenizer.phonemes(text) == phonemes


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Uh oh. Where is it?", "ˈʌh ˈO. wˌɛɹ ɪz ɪt?"),
        ("Uh-oh, no.", "ˈʌh ˈO, nˈO."),
        ("Uh, oh, no.", "ˈʌ, ˈO, nˈO."),
        ("Uh no.", "ˈʌ nˈO."),
    ],
)
def test_uh_does_not_become_one_with_oh(tokenizer: PhonemeTokenizer, text: str, phonemes: str) -> None:
    assert tokenizer.phonemes(text) == phonemes


@pytest.mark.parametrize(
    "text",
    [
        "Plan A.",
        "Row F.",
        "Vitamin D.",
        "Gate D.",
        "It's A or B.",
        "As X said.",
        "The best I can do.",
        "The best a man can get.",
        "He left a note.",
        "Page e.",
        "A B C.",
    ],
)
def test_other_words_have_no_pause_before_a_letter(tokenizer: PhonemeTokenizer, text: str) -> None:
    assert "," not in tokenizer.phonemes(text)


def test_a_mark_is_kept_and_words_are_counted_alike(tokenizer: PhonemeTokenizer) -> None:
    assert tokenizer.phonemes("Stage; E.") == "stˈAʤ; ˈi."
    words = tokenizer.spoken_words("Open page E now.")
    assert [word for word, _, _ in words] == ["Open", "page", "E", "now"]
    ids = tokenizer.encode("Open page E now.")
    spoken = ["".join(SYMBOLS[number] for number in ids[first : first + count]) for _, first, count in words]
    assert spoken == ["ˈOpᵊn", "pˈAʤ", "ˈi", "nˈW"]


@pytest.mark.parametrize("text", ["Open page E now, or gate F at once.", "My grade was A. Take bus A."])
def test_a_text_in_pieces_pauses_at_the_same_places(tokenizer: PhonemeTokenizer, text: str) -> None:
    encoder = tokenizer.incremental_encoder()
    words = text.split(" ")
    ids = list(encoder.opening)
    for word in words[:-1]:
        ids += encoder.feed(f"{word} ").ids
    assert ids + encoder.finish(words[-1]).ids == tokenizer.encode(text)
