"""Values of say-as in words, and IPA in the notation of the model; and the SSML section of
docs/text.md.
"""

import re
from pathlib import Path

import pytest

from services.frontend.ssml import elements
from services.frontend.ssml.elements import RATES, STRENGTHS
from services.frontend.ssml.reader import Reader
from services.frontend.ssml.say_as.values import FORMATS, KINDS, value_of
from services.frontend.tokenizers.phonemes.symbols import misaki_of

ENGLISH = (
    ("cardinal", "", "2024", "two thousand and twenty four"),
    ("cardinal", "", "-1,250.50", "minus one thousand two hundred and fifty point five zero"),
    ("cardinal", "", "0", "zero"),
    ("number", "", "007", "seven"),
    ("ordinal", "", "21", "twenty first"),
    ("ordinal", "", "3rd", "third"),
    ("ordinal", "", "#1", "first"),
    ("digits", "", "2024", "two zero two four"),
    ("digits", "", "12 34", "one two three four"),
    ("telephone", "", "+1 (555) 123-4567", "plus one, five five five, one two three, four five six seven"),
    ("characters", "", "Ab-1", "A B dash one"),
    ("spell-out", "", "SQL", "S Q L"),
    ("verbatim", "", "a@b.c", "A at B dot C"),
    ("date", "ymd", "2024-05-01", "May first, twenty twenty four"),
    ("date", "", "2024/05/21", "May twenty first, twenty twenty four"),
    ("date", "dmy", "1.2.2005", "February first, two thousand and five"),
    ("date", "mdy", "1/2/1905", "January second, nineteen oh five"),
    ("date", "", "20240501", "May first, twenty twenty four"),
    ("date", "my", "12/1999", "December nineteen ninety nine"),
    ("date", "md", "07-04", "July fourth"),
    ("date", "d", "4", "the fourth"),
    ("date", "y", "1900", "nineteen hundred"),
    ("time", "", "7:30pm", "seven thirty PM"),
    ("time", "hms24", "19:05", "nineteen oh five"),
    ("time", "", "9:00 AM", "nine AM"),
    ("time", "", "7:00", "seven o'clock"),
    ("time", "", "12:30:01", "twelve thirty and one second"),
    ("time", "", "00:00", "zero hundred"),
    ("currency", "", "$12.50", "twelve dollars fifty cents"),
    ("currency", "", "USD 1", "one dollar"),
    ("money", "", "0.01 €", "one cent"),
    ("currency", "", "¥100", "one hundred yuan"),
    ("currency", "", "-£2.05", "minus two pounds five pence"),
    ("currency", "", "1,000 JPY", "one thousand yen"),
    ("fraction", "", "1/2", "one half"),
    ("fraction", "", "3/4", "three quarters"),
    ("fraction", "", "1 1/2", "one and a half"),
    ("fraction", "", "5/16", "five sixteenths"),
    ("fraction", "", "-2/3", "minus two thirds"),
    ("unit", "", "10in", "ten inches"),
    ("unit", "", "1 ft", "one foot"),
    ("measure", "", "2.5 km/h", "two point five kilometers per hour"),
    ("unit", "", "20°C", "twenty degrees Celsius"),
    ("unit", "", "3 kilograms", "three kilograms"),
    ("unit", "", "50%", "fifty percent"),
)
CHINESE = (
    ("cardinal", "", "1024", "一千零二十四"),
    ("cardinal", "", "10010", "一万零一十"),
    ("cardinal", "", "100000003", "一亿零三"),
    ("cardinal", "", "12", "十二"),
    ("cardinal", "", "-3.14", "负三点一四"),
    ("cardinal", "", "12345678901", "一百二十三亿四千五百六十七万八千九百零一"),
    ("cardinal", "", "1000200000000", "一万零二亿"),
    ("cardinal", "", "0", "零"),
    ("cardinal", "", "20500", "二万零五百"),
    ("ordinal", "", "第3", "第三"),
    ("digits", "", "2024", "二零二四"),
    ("telephone", "", "138 0013", "幺三八，零零幺三"),
    ("characters", "", "AB1", "AB一"),
    ("characters", "", "SQL", "S Q L"),
    ("date", "", "2024-05-01", "二零二四年五月一日"),
    ("date", "md", "10/21", "十月二十一日"),
    ("time", "", "14:05", "十四点零五分"),
    ("time", "", "2:30pm", "下午两点三十分"),
    ("time", "", "8:00", "八点整"),
    ("time", "", "8:00:05", "八点零分零五秒"),
    ("currency", "", "$12.50", "十二点五美元"),
    ("currency", "", "2元", "两元"),
    ("fraction", "", "3/4", "四分之三"),
    ("fraction", "", "1 1/2", "一又二分之一"),
    ("unit", "", "2kg", "两千克"),
    ("unit", "", "-3.5℃", "负三点五摄氏度"),
    ("unit", "", "50%", "百分之五十"),
)


def words(kind: str, form: str, written: str, language: str) -> str | None:
    value = value_of(KINDS[kind], form, written)
    return None if value is None else value.words(language, None)


@pytest.mark.parametrize(("kind", "form", "written", "spoken"), ENGLISH)
def test_english(kind: str, form: str, written: str, spoken: str) -> None:
    assert words(kind, form, written, "en") == spoken


@pytest.mark.parametrize(("kind", "form", "written", "spoken"), CHINESE)
def test_chinese(kind: str, form: str, written: str, spoken: str) -> None:
    assert words(kind, form, written, "zh") == spoken


def test_another_language_reads_it_as_it_is_written() -> None:
    assert words("cardinal", "", "1,024", "de") == "1,024"


def test_letters_are_given_by_name_to_a_model_that_reads_phonemes() -> None:
    assert value_of("characters", "", "ab1C").words("en", lambda phonemes: f"/{phonemes}/") == "/ˌAbˈi/ one /sˈi/"


@pytest.mark.parametrize(
    ("kind", "form", "written"),
    [
        ("cardinal", "", "three"),
        ("cardinal", "", "1,2"),
        ("ordinal", "", "-1"),
        ("digits", "", "12a"),
        ("telephone", "", "call me"),
        ("characters", "", "--"),
        ("date", "ymd", "2024-13-01"),
        ("date", "mdy", "31/1/2024"),
        ("date", "ymd", "May 5"),
        ("date", "xyz", "1-2-3"),
        ("date", "md", "1-2-3"),
        ("time", "", "25:00"),
        ("time", "", "noon"),
        ("currency", "", "12 XXX"),
        ("currency", "", "12"),
        ("fraction", "", "1/0"),
        ("fraction", "", "half"),
        ("unit", "", "5 parsec"),
        ("unit", "", "kg"),
        ("cardinal", "", ""),
        ("cardinal", "", "1" * 40),
        ("date", "", "0000-01-01"),
        ("cardinal", "", "²"),
        ("cardinal", "", "٣"),
    ],
)
def test_what_is_none_of_its_kind(kind: str, form: str, written: str) -> None:
    assert words(kind, form, written, "en") is None


@pytest.mark.parametrize(
    ("ipa", "misaki"),
    [
        ("təˈmeɪtoʊ", "təmˈAtO"),
        ("ˈnaɪki", "nˈIki"),
        ("/pɪˈkɑːn/", "pɪkˈɑn"),
        ("t͡ʃiːz", "ʧiz"),
        ("dʒʌdʒ", "ʤʌʤ"),
        ("ˈbʌt.n̩", "bˈʌtᵊn"),
        ("ˈwɔtər ˈboi", "wˈɔtəɹ bˈOi"),
        ("ɪnˌtɛlɪˈdʒɛnt", "ɪntˌɛlɪʤˈɛnt"),
        ("bɝd", "bɜɹd"),
        ("ɡoʊ", "ɡO"),
        ("go", "ɡO"),
    ],
)
def test_ipa(ipa: str, misaki: str) -> None:
    assert misaki_of(ipa) == misaki


def test_ipa_of_other_languages_is_named() -> None:
    with pytest.raises(ValueError, match=r"'ʁ' \(U\+0281\) is no symbol of English in IPA"):
        misaki_of("ʁuʒ")


PAGE = (
    (Path(__file__).parents[4] / "docs" / "text.md")
    .read_text(encoding="utf-8")
    .partition("## SSML\n")[2]
    .partition("\n## ")[0]
)
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")]
VALUES = [row for row in ROWS if len(row) == 4 and row[1] != "read"]


def test_all_elements_and_kinds_are_there() -> None:
    assert {name for row in ROWS if len(row) == 3 for name in re.findall("`([a-z-]+)`", row[0])} == set(elements.READ)
    assert [name for row in VALUES for name in re.findall("`([a-z-]{4,})`", row[0]) if name != "format"] == list(KINDS)
    assert re.findall("`([ymd]{1,3})`", "".join(row[0] for row in VALUES))[: len(FORMATS)] == list(FORMATS)


def test_numbers_are_those_of_the_code() -> None:
    assert {
        name: float(rate) for name, rate in re.findall(r"`(x-slow|slow|fast|x-fast)` ([0-9.]+)", PAGE)
    }.items() <= RATES.items()
    strengths = re.findall(r"`(none|x-weak|weak|medium|strong|x-strong)`(?: \(default\))? ([0-9]+)", PAGE)
    assert {name: int(milliseconds) for name, milliseconds in strengths} == STRENGTHS
    for number in (elements.LONGEST_DOCUMENT, elements.DEEPEST, elements.LONGEST_TAG, elements.LONGEST_CONTENT):
        assert f"{number:,}" in PAGE


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row[0][:12])
def test_values_are_read_as_the_page_says(row: list[str]) -> None:
    kind = re.findall("`([a-z-]+)`", row[0])[0]
    value = value_of(KINDS[kind], "", row[1])
    assert [value.words("en", None), value.words("zh", None)] == row[2:]


def test_the_example_is_a_document() -> None:
    reader = Reader(1.0, None)
    assert [*reader.feed(PAGE.partition("```xml\n")[2].partition("```")[0]), *reader.finish()]
    assert len(reader.inserted) == 2
