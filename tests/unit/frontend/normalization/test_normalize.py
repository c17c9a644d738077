"""Normalisation: the character rules, the corrected faults, and wetext."""

import pytest

from services.frontend.normalization.normalize import Normalizer, drop_blanks, spell_digits
from services.frontend.normalization.wetext_package import WeText

PLAIN = Normalizer(None)
REFERENCE = Normalizer(None, reference=True)
WITH_PACKAGE = Normalizer(WeText())


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("图a.b", "图a。b"),
        ("面积a²和b³", "面积a平方和b立方"),
        ("第一\n第二", "第一第二"),
        ("中 文 ab cd 中", "中文ab cd中"),
        ("一 - 二", "一-二"),
        ("a - b中", "a，b中"),
        ("（甲）【乙】`丙`——丁", "甲乙丙 丁"),
        ("好，,、", "好。"),
        ("，", "。"),
    ],
)
def test_chinese_rules(text: str, spoken: str) -> None:
    assert PLAIN.normalise(text, "zh") == spoken == REFERENCE.normalise(text, "zh")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b", "a b"), ("a  b", "ab"), (" a", "a"), ("a ", "a"), ("中 a", "中a"), (" ", ""), ("", "")],
)
def test_blanks_at_the_margins_do_not_raise(text: str, expected: str) -> None:
    assert drop_blanks(text) == expected


def test_a_run_knows_the_character_before_it() -> None:
    assert PLAIN.normalise(" b", "zh", before="a", last=False) == " b"
    assert PLAIN.normalise("好，", "zh", last=False) == "好，"


@pytest.mark.parametrize(
    ("text", "spoken", "as_specified"),
    [
        ("12 dogs", "twelve dogs", "twelve dogs"),
        ("1,250", "one,two hundred and fifty", "one,two hundred and fifty"),
        ("007", "zero zero seven", "seven"),
        ("5 m²", "five m squared", "five mzero"),
        ("①", "one", "zero"),
        ("0", "zero", "zero"),
        ("9" * 37, " ".join(["nine"] * 37), " ".join(["nine"] * 37)),
        ("no digits", "no digits", "no digits"),
    ],
)
def test_english_digits(text: str, spoken: str, as_specified: str) -> None:
    assert spell_digits(text) == spoken
    assert spell_digits(text, reference=True) == as_specified


@pytest.mark.parametrize(
    ("text", "language", "spoken"),
    [
        ("今天是2024年5月1日，气温-3.5℃。", "zh", "今天是二零二四年五月一日，气温负三点五摄氏度。"),
        ("It cost $12.50 and 3 kg.", "en", "It cost twelve dollars fifty cents and three kilograms."),
        ("12", "en", "twelve"),
        ("12", "zh", "十二"),
        ('He said "12" twice', "en", 'He said "twelve" twice'),
        ('他说"3"次', "zh", '他说"三"次'),
        ("10 Äpfel", "de-DE", "10 Äpfel"),
        ("12 שלום", "en", "twelve שלום"),
        ("hello 😀 3", "en", "hello 😀 three"),
    ],
)
def test_numbers_are_read_in_the_language_around_them(text: str, language: str, spoken: str) -> None:
    assert WITH_PACKAGE.normalise(text, language) == spoken


def test_an_address_is_spelled_and_not_cut() -> None:
    spoken = WITH_PACKAGE.normalise("see https://a.b/c?d=1&e=2.5 now", "en")
    assert spoken.startswith("see HTTPS colon slash slash a dot b slash c question mark")
    assert spoken.endswith("two point five now")


def test_what_the_grammar_cannot_read_is_not_lost() -> None:
    assert WITH_PACKAGE.normalise("icon \U0010ffff here 3", "en") == "icon \U0010ffff here three"


def test_an_endless_number_is_read_digit_by_digit() -> None:
    assert WITH_PACKAGE.normalise("号" + "12345" * 8, "zh") == "号" + "一二三四五" * 8
    assert (
        WITH_PACKAGE.normalise("3 no " + "12345" * 8 + " 4", "en")
        == "three no " + " ".join(["one two three four five"] * 8) + " four"
    )
    assert WITH_PACKAGE.normalise("13800138000", "zh") == "幺三八零零幺三八零零零"
