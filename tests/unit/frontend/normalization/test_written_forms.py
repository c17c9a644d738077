"""Forms that rules read by what is next to them: codes, dates without a year, weekdays, two
measures side by side, rows of Roman numerals, points of the compass.
"""

import pytest

from services.frontend.normalization import chinese_readings
from tests.unit.frontend.models import DEMO, analyzer

SPOKEN = {
    "Call 911, 112 or 999.": "Call nine one one, one one two or nine nine nine.",
    "Try 555-2368, 200-300 km": "Try five five five, two three six eight, two hundred to three hundred kilometers",
    "Order #KX-4821, case B-20391 and COVID-19": (
        "Order number KX forty eight twenty one, case B two zero three nine one and COVID-nineteen"
    ),
    "CVE-2021-44228 and Blink-182": "CVE twenty twenty one four four two two eight and Blink one eighty two",
    "RFC 2616, 403(b) and 501(c)(3)": "RFC twenty six sixteen, four oh three B and five oh one C three",
    "exit code -1, gate A-12": "exit code negative one, gate A twelve",
    "http://localhost:8080/": "local host colon eighty eighty",
    "Wi-Fi 802.11ac": "Wi-Fi eight oh two point eleven A C",
    "a 4.7inch pipe, 2.5ish, 1.4.2rc": "a four point seven inch pipe, two point five ish, one point four point two rc",
    "Section 4.10, 4.10 m": "Section four point ten, four point one zero meters",
    "figures 2.35 million, a table 4.25 m long": (
        "figures two point three five million, a table four point two five meters long"
    ),
    "See vol. II, ch. IX.": "See volume two, chapter nine.",
    "Parts I, II and III; wars I-III": "Parts one, two and three; wars one to three",
    "V, X and C; I and Ivan; Me and I": "V, X and C; I and Ivan; Me and I",
    "IIII, II": "IIII, II",
    "After World War II, I left; in Part III, I stay.": "After World War two, I left; in Part three, I stay.",
    "Pre-2005 laws, #covid-19": "Pre-two thousand and five laws, hashtag covid-nineteen",
    "It cost $802.11, 802.11% more": (
        "It cost eight hundred and two dollars eleven cents, eight hundred and two point one one percent more"
    ),
    "00:1A:2b:3C:4D:5E": "zero zero, one A, two B, three C, four D, five E",
    "2031-02-05T14:30:00Z, 2031-02-05T14:30:07.5": (
        "the fifth of february twenty thirty one at fourteen thirty UTC, the fifth of february twenty thirty one at "
        "fourteen thirty and seven seconds"
    ),
    "2031-13-05T14:30": "twenty thirty one-thirteen-zero five T fourteen:thirty",
    "It ships 3/14, and 3/14 of it": "It ships March fourteenth, and three fourteenths of it",
    "Mon-Fri 9-5, Sat 10am-2pm": "Monday to Friday nine to five, Saturday ten AM to two PM",
    "Open Tue–Thurs. Sun, Jan 6": "Open Tuesday to Thursday Sunday, January sixth",
    "2m/6ft, 120V/60Hz, 6.5L/100km": (
        "two meters, six feet, one hundred and twenty volts, sixty hertz, six point five liters per one hundred "
        "kilometers"
    ),
    "4x100m, 2 x 500 ml, 4x4": "four by one hundred meters, two times five hundred milliliters, four times four",
    "3 GB/10 GB, 3x 10 m": "three gigabytes, ten gigabytes, three times ten meters",
    "2x4s, 3 x 2 s": "two by fours, three times two seconds",
    "Dial *67; 2 *67; press # to go": "Dial star sixty seven; two times sixty seven; press pound to go",
    "20% – 25%": "twenty to twenty five percent",
    "item 1/3, 1/3 of it": "item one of three, one third of it",
    "set 1/3, set 1/3 of it aside": "set one of three, set one third of it aside",
    "Yes/No? a/b?c=d": "Yes No? a/b?c equals d",
    "in 4K, 8K. 4K users": "in four K, eight K. four thousand users",
    "12 Main Ave. NW": "twelve Main Avenue Northwest",
    "40.5° N, 7°W, 30 °C": "forty point five degrees north, seven degrees west, thirty degrees Celsius",
    "No. of items; No. of course": "Number of items; No. of course",
    "It's at 5 p.m. EST, 9 a.m. Tuesday.": "It's at five PM EST, nine AM Tuesday.",
    "The Rev. Dr. King lost 450 pts.": "The reverend doctor King lost four hundred and fifty points.",
    "a C- in art; type O-, AB- blood": "a C minus in art; type O minus, AB minus blood",
    "Press Ctrl-D.": "Press Control D.",
    "Great! :) See you ;-) note :(a)": "Great! See you note :(a)",
}


@pytest.mark.parametrize("written", SPOKEN)
def test_a_form_is_read_by_what_is_next_to_it(written: str) -> None:
    assert analyzer(DEMO).normalise(written, "en") == SPOKEN[written]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("见P25-30，pp.3-5", "见P二十五到三十，pp三到五"),
        ("油耗6.5L/100km，含糖10g/100ml", "油耗每一百公里六点五升，含糖每一百毫升十克"),
        ("A座12层1205，12层1205户", "A座十二层一二零五，十二层一千二百零五户"),
        ("3,000+件，1.5万+人，20+", "三千多件，一点五万加人，二十多"),
        ("身高1米75，2米5，3米10厘米", "身高一米七五，两米五，三米十厘米"),
        ("每3米20元，隔3米10棵树", "每三米二十元，隔三米十棵树"),
        ("打开设置>通用>关于，甲>乙", "打开设置，通用，关于，甲大于乙"),
        ("若a>b>c", "若a大于b大于c"),
        ("Vol.3，Ver. 2.0", "Vol 三，Ver 二点零"),
        ("24/7客服，24/70", "七天二十四小时客服，七十分之二十四"),
    ],
)
def test_a_chinese_form_is_read_by_what_is_next_to_it(written: str, spoken: str) -> None:
    assert chinese_readings.rewrite(written) == spoken
