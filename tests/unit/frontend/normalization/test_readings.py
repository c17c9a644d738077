"""Written forms have their usual readings, except those that docs/readings.md lists; case by case,
`text_cases.json` holds them and docs/text.md shows the same ones. English and Chinese forms by
context: each pair distinguishes two readings of one form. The cost of plain and of hostile text.
"""

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from services.frontend.analysis.input_text import StreamingText
from services.frontend.normalization import chinese_readings, english_readings
from services.frontend.segmentation.text_units import Units
from services.frontend.text.chinese_numbers import amount, cardinal
from tests.unit.frontend.models import DEMO, ROOT, TINY, analyzer
from tools.quality.readings import PAGE, TEXTS, ReadText, judged, page_with, read_rows, section

MOST_WRONG = 0.03
LANGUAGES = list(TEXTS)


@cache
def readings(language: str) -> list[ReadText]:
    return judged(read_rows(TEXTS[language]), language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_at_most_three_in_a_hundred_are_read_wrong(language: str) -> None:
    read = readings(language)
    wrong = [f"{one.row.text!r} is read {one.said!r}" for one in read if not one.right]
    assert len(wrong) <= MOST_WRONG * len(read), "\n".join(wrong)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_lists_every_wrong_one(language: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, language, section(language, readings(language)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_texts_of_every_class(language: str) -> None:
    rows = read_rows(TEXTS[language])
    assert len(rows) >= 100
    assert len({row.kind for row in rows}) >= 20


CASES: list[dict[str, str]] = json.loads((Path(__file__).parent / "text_cases.json").read_text(encoding="utf-8"))


def rows(cases: list[dict[str, str]]) -> list[str]:
    """The rows of the table in docs/text.md."""

    def cell(text: str) -> str:
        return "`` " + text.replace("\n", "⏎").replace("|", "\\|") + " ``"

    return [
        f"| {case['kind']} | {cell(case['text'])} | {case.get('language', '')} | {cell(case['spoken'])} | "
        f"{case.get('accepted', '')} |"
        for case in cases
    ]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['kind']}: {case['text'][:30]!a}" for case in CASES])
def test_a_written_form_is_read_as_the_table_says(case: dict[str, Any]) -> None:
    assert analyzer(TINY).normalise(case["text"], case.get("language", "")) == case["spoken"]


def test_the_page_shows_these_cases_and_no_others() -> None:
    page = (ROOT / "docs/text.md").read_text(encoding="utf-8")
    table = [line for line in page.split("| kind | written |")[1].splitlines()[2:] if line.startswith("|")]
    assert table == rows(CASES)


def test_there_are_enough_of_every_kind() -> None:
    assert len(CASES) >= 60
    assert len({case["text"] + case.get("language", "") for case in CASES}) == len(CASES)
    assert {"zh" if "zh" in case["kind"] else "en" for case in CASES} == {"zh", "en"}


SPOKEN = {
    "No. No. 5 is alive.": "No. number five is alive.",
    "He lives on Elm St. My friend lives in St. Paul.": "He lives on Elm Street. My friend lives in Saint Paul.",
    "Dr. Lee lives at 12 Oak Dr. in town.": "doctor Lee lives at twelve Oak Drive in town.",
    "He moved to the U.S. It was hard.": "He moved to the US. It was hard.",
    "The U.S. economy grew.": "The US economy grew.",
    "Sat. down he sat. We meet on Sat. and Sun.": "Sat. down he sat. We meet on Saturday and Sunday.",
    "Run 400m, then rest; it began 5m ago.": "Run four hundred meters, then rest; it began five minutes ago.",
    "a 20 A fuse, grade A": "a twenty amp fuse, grade A",
    "She said \"I'm 27\" of the 27\" screen.": "She said \"I'm twenty seven\" of the twenty seven inches screen.",
    "A 12\" pizza is $14.": "A twelve inch pizza is fourteen dollars.",
    "5 - 3 and 5 - 10 km, 20 - 6 = 14": "five minus three and five to ten kilometers, twenty minus six equals fourteen",
    "In her 30s she waited 30s.": "In her thirties she waited thirty seconds.",
    "There were 1309 people in 1309.": "There were one thousand three hundred and nine people in thirteen oh nine.",
    "room 304 on port 8080, 304 people": "room three oh four on port eighty eighty, three hundred and four people",
    "Python 3.12 is not 3.12.": "Python three point twelve is not three point one two.",
    "My PIN is 0042.": "My pin is zero zero four two.",
    "I rate it 8/10, 3/4 of it, 50/50, on 11/5.":
        "I rate it eight out of ten, three quarters of it, fifty fifty, on November fifth.",
    "His BP was 118/76.": "His BP was one eighteen over seventy six.",
    "Type II, Henry VIII, Rocky IV, World War I": "Type two, Henry the eighth, Rocky four, World War one",
    "I think Elizabeth I reigned, and Charles, I think, too.":
        "I think Elizabeth the first reigned, and Charles, I think, too.",
    "MIX CD VI": "MIX CD VI",
    "10⁶ and x₁, H₂O, 20 m²": "ten to the sixth and x one, H two O, twenty square meters",
    "$5-10, $1.2M–$1.5M, a $20 bill":
        "five to ten dollars, one point two to one point five million dollars, a twenty dollar bill",
    "25-30%, 35‰": "twenty five to thirty percent, thirty five per mille",
    "5'4\" and 6 ft 2 in": "five foot four and six feet two inches",
    "1 000 000 people, 18\u2009600 copies": "one million people, eighteen thousand six hundred copies",
    "learning rate 1e-6, mask 0x1F": "learning rate one E minus six, mask hex one F",
    "C#, F#, #1, #GoodDay": "C sharp, F sharp, number one, hashtag Good Day",
    "and/or, w/o, A/B, km/h": "and or, without, A B, kilometers per hour",
    "getUserById and HTTPServer, iPhone, McDonald": "get User By I D and HTTP Server, iPhone, McDonald",
    "Use kubectl -n x --help.": "Use kube control dash N x dash dash help.",
    "Press Ctrl+C in /usr/local/bin/python3.":
        "Press Control C in slash user slash local slash bin slash python three.",
    "Q3 FY2024, FY19": "Q three fiscal year twenty twenty four, fiscal year nineteen",
    "1) two eggs, 2) a cup": "one, two eggs, two, a cup",
    "1. Wash. 2. Rinse.": "one, Wash. two, Rinse.",
    "She said no. 4 of us left on bus no. 4.": "She said no. four of us left on bus number four.",
    "Room number 204, error code 404": "Room number two oh four, error code four oh four",
    "Ports 80 and 8443, 80 ports": "Ports eighty and eighty four forty three, eighty ports",
    "The code is 093 518.": "The code is zero nine three, five one eight.",
    "1.5m followers, a 1.5m pole": "one point five million followers, a one point five meter pole",
    "The price per kg, in km/h or in m².": "The price per kilogram, in kilometers per hour or in square meters.",
    "1.67 × 10⁻²⁷ kg, a² + b²":
        "one point six seven times ten to the minus twenty seventh kilograms, A squared plus b squared",
    "Ca²⁺, SO₄²⁻, Na⁺, E = mc²": "C A two plus, S O four two minus, N A plus, E equals M C squared",
    "0b101": "binary one zero one",
    "His time was 2:03:11.": "His time was two hours three minutes and eleven seconds.",
    "It went off at 02:03:11.": "It went off at two o three and eleven seconds.",
    "6/8 time, 6/8 of it": "six eight time, six eighths of it",
    "Malcolm X met Malcolm IV.": "Malcolm X met Malcolm the fourth.",
    "i) wash\nii) dry": "one, wash\ntwo, dry",
    "a load of 1 500 kg": "a load of one thousand five hundred kilograms",
    "March 12th, 2024; June 3-7": "March twelfth, twenty twenty four; June third to seventh",
    "27.09.2021": "the twenty seventh of september twenty twenty one",
    "Austin, TX 78704 or Boise, ID": "Austin, Texas seven eight seven zero four or Boise, ID",
    "Boeing 747s, flight BA 286": "Boeing seven forty sevens, flight B A two eighty six",
    "A ratio of 3:1 at 3:15.": "A ratio of three to one at three fifteen.",
}  # fmt: skip
PLAIN = (
    # Letters that are no Roman numeral.
    "see section CE now",
    "see section IIII now",
    "March down the hall, and wait for me there.",
    "I think that Will may come with us; Mark is out.",
    "Please come in and sit down. No, not there!",
    "He said that I, of all people, was right.",
    "McDonald's and O'Neil's well-known, old-fashioned shop isn't far.",
    "NASA and the FBI asked the CEO about DNA.",
    "Is it in, or out? It is me. I love art. Do you?",
    '"Wait," she said (twice) - and left...',
)
HOSTILE = (
    "3.14159 ", "1/1/1/1", "((((", "a.b.c.d", "1,000", "- - 5 -", "A1b2", "/a/b.c", "aB", "St. ", "$5-", "1:2:3:4 ",
    "H₂", "XIV ",
    "account is is ",
    "5 ft ", "1) ", "½ ", "--a", "1 000 ", "0x1", '12"', "a-1-", "call 1 ", "C:\\a\\", "../", "#a1", "x^2", "PIN PIN ",
    "Ctrl+", "a/b/",
    "Jan 5", "(1", "a", "A.", "1,", "$1-$1 ", f"xx{'1' * 40}",
)  # fmt: skip


@pytest.mark.parametrize("written", SPOKEN)
def test_a_form_is_read_by_its_context(written: str) -> None:
    assert analyzer(DEMO).normalise(written, "en") == SPOKEN[written]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert analyzer(DEMO).normalise(text, "en") == text


@pytest.mark.parametrize("seed", HOSTILE)
def test_time_grows_with_the_length_of_hostile_text(seed: str) -> None:
    def seconds(length: int) -> float:
        text = (seed * (length // len(seed) + 1))[:length]
        begin = time.thread_time()
        english_readings.rewrite(text)
        return time.thread_time() - begin

    seconds(1000)
    # Four times the length: a quadratic rule would take sixteen times as long. Other work on the
    # machine slows a run by up to a half.
    assert min(seconds(20_000) for _ in range(2)) < 10 * max(min(seconds(5_000) for _ in range(3)), 0.002)


def test_each_way_of_sending_a_text_reads_the_same() -> None:
    """As a whole, by sentence, and by token letter by letter."""

    def spoken(text: str, parts: list[str], *, partial: bool) -> list[str]:
        of = StreamingText(
            analyzer(DEMO),
            analyzer(DEMO).reading("", allow_control_tokens=False, pronunciations={}),
            Units(400),
            partial=partial,
        )
        pieces = [piece for part in parts for piece in of.feed(part)]
        return [word for piece in [*pieces, *of.finish()] for word, _, _ in piece.words]  # type: ignore[union-attr]

    rows = read_rows(TEXTS["english"])
    assert len(rows) == 300
    for row in rows:
        whole = [word for sentence in analyzer(DEMO).sentences(row.text) for word, _, _ in sentence.words]
        assert spoken(row.text, [row.text], partial=False) == whole
        assert spoken(row.text, list(row.text), partial=True) == whole


def test_words_that_decide_the_reading_of_a_number_stay_with_it() -> None:
    for text in ("account", "my account number is", "World War", "a 20 A", "5 million", "Chapter"):
        assert english_readings.has_begun(text)
    for text in ("", "a plain word", "account of all that was said"):
        assert not english_readings.has_begun(text)
    assert english_readings.is_roman_numeral("XIV")
    assert not english_readings.is_roman_numeral("I")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("0", "零"),
        ("10", "十"),
        ("110", "一百一十"),
        ("1005", "一千零五"),
        ("10010", "一万零一十"),
        ("20020", "两万零二十"),
        ("222", "两百二十二"),
        ("100000001", "一亿零一"),
        ("10000000000000", "十万亿"),
        ("007", "零零七"),
        # One 亿 follows both groups above it.
        ("1000200000000", "一万零二亿"),
        ("1000000000000", "一万亿"),
        ("9" * 17, "九" * 17),
    ],
)
def test_cardinals(number: str, words: str) -> None:
    assert cardinal(number) == words


@pytest.mark.parametrize(
    ("number", "behind", "words"),
    [
        ("2", "个", "两"),
        ("2", "楼", "二"),
        ("12", "个", "十二"),
        ("1,250", "", "一千二百五十"),
        ("2.50", "元", "二点五零"),
        ("2", "晚点", "二"),
    ],
)
def test_amounts(number: str, behind: str, words: str) -> None:
    assert amount(number, behind) == words


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("比分21:15，时间21:15", "比分二十一比十五，时间二十一点十五分"),
        ("3-1击败，3-5天", "三比一击败，三到五天"),
        ("20-6=14，第4-6页", "二十减六等于十四，第四到六页"),
        ("歼-20在-20度", "歼二十在负二十度"),
        ("有2000年历史，2000年", "有两千年历史，二零零零年"),
        ("打110，打100个", "打幺幺零，打一百个"),
        ("MU5302晚点，MU530个", "MU五三零二晚点，MU五百三十个"),
        ("iPhone 5s，等5s", "iPhone 五s，等五秒"),
        ("4g网络，4g盐", "四g网络，四克盐"),
        ("5-10/2=0", "五减十除以二等于零"),
        ("3至5天，3-5天", "三至五天，三到五天"),
        ("房间302，302个房间", "房间三零二，三百零二个房间"),
        ("10086，10000元", "幺零零八六，一万元"),
        ("2x-1，1x-2", "二x减一，一x减二"),
        ("5/1放假，答对了3/4", "五月一日放假，答对了四分之三"),
        ("截止6/30，1/3的人，从5/1到5/7", "截止六月三十日，三分之一的人，从五月一日到五月七日"),
        ("等于5/2，第IV章，II型，V型", "等于二分之五，第四章，二型，V型"),
        ("24/70，1e5，50/50", "七十分之二十四，1e5，五十比五十"),
        *[("好的，我马上为您查询：三心二意——《书》（甲）。Hello world",) * 2],
    ],
)
def test_the_words_around_a_number_decide(text: str, spoken: str) -> None:
    assert chinese_readings.rewrite(text) == spoken


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1+",
        "1x-",
        "1!=",
        "1-",
        "1:",
        "1,",
        "1.",
        "(1",
        "¥1-",
        "1年",
        "打1",
        "电话",
        "第1",
        "1km",
        "1/",
        "a1",
        "号码1 ",
        "1至",
        "…+",
        "x",
        "拨",
        "1元-",
    ],
)
def test_time_grows_with_the_length(piece: str) -> None:
    """A run has 200 characters; one of 4,000 may take 20 times its time, and some more for bounded
    look-ahead.
    """

    def milliseconds(length: int) -> float:
        text = (piece * length)[:length]
        begin = time.process_time()
        chinese_readings.rewrite(text)
        return (time.process_time() - begin) * 1000

    assert min(milliseconds(200) for _ in range(3)) < 20
    assert milliseconds(4000) < 20 * 4000 / 200 * 2
