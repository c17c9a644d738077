"""English written forms by context: each pair distinguishes two readings of one form. The cost of
plain and of hostile text.
"""

import time
from pathlib import Path

import pytest

from services.frontend.analysis.streaming import StreamingText
from services.frontend.normalization import english_readings as readings
from services.frontend.segmentation.text_units import Units
from tests.unit.frontend.models import DEMO, analyzer
from tools.quality.readings import TEXTS, read_rows

ROOT = Path(__file__).parents[4]
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
        readings.rewrite(text)
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
        assert readings.has_begun(text)
    for text in ("", "a plain word", "account of all that was said"):
        assert not readings.has_begun(text)
    assert readings.is_roman_numeral("XIV")
    assert not readings.is_roman_numeral("I")
