"""Forms that rules read by what is next to them: codes, dates without a year, weekdays, two
measures side by side, rows of Roman numerals, points of the compass, keys, roads, rates, models.
"""

import pytest

from services.frontend.normalization import chinese_readings
from tests.unit.frontend.models import DEMO, TINY, analyzer

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
    "Press 2, # or * to go, then the # key.": "Press two, pound or star to go, then the pound key.",
    "the #2 pick, 3 * 4, then #2": "the number two pick, three times four, then number two",
    "Take I-80 W to US-50 E and Route 9 NB.": "Take I eighty West to US fifty East and Route nine northbound.",
    "size 10 S, gate 9 E, exit 4 N": "size ten S, gate nine E, exit four N",
    "on Park Ave near 5th Ave and Elm Blvd": "on Park Avenue near fifth Avenue and Elm Boulevard",
    "Ave Maria; Sing Ave Maria": "Ave Maria; Sing Ave Maria",
    "Lee, D-Mass., of Fresno, Calif., and Roe, R-Fla.": (
        "Lee, D-Massachusetts, of Fresno, California, and Roe, R-Florida."
    ),
    "Yes, Miss. I do. Is it Wash. or not?": "Yes, Miss. I do. Is it Wash. or not?",
    "$70/bbl, $4/slice, $8/user/month, $5/2": (
        "seventy dollars per barrel, four dollars per slice, eight dollars per user per month, five dollars/two"
    ),
    "WWII, WW1 and a WWF film": "World War two, World War one and a WWF film",
    "Dilute it 1:10; a 1:100 dilution; mix at 1:10.": (
        "Dilute it one to ten; a one to one hundred dilution; mix at one ten."
    ),
    "up 25 bps, a 5-10 bps cut": "up twenty five basis points, a five to ten basis point cut",
    "a 300 bps modem, 9600 bps": "a three hundred bit per second modem, nine thousand six hundred bits per second",
    "winds of 12 kt, 18 kt gold, 14K gold": "winds of twelve knots, eighteen karat gold, fourteen karat gold",
    "a 5 kt bomb, a 14K loss": "a five kt bomb, a fourteen thousand loss",
    "4K at 60 Hz, 8K footage, 4K units, 5M video views": (
        "four K at sixty hertz, eight K footage, four thousand units, five million video views"
    ),
    "an RTX 4090, a Ryzen 7 5800X, a Core i7-12700K": (
        "an RTX forty ninety, a Ryzen seven fifty eight hundred X, a Core i seven twelve seven hundred K"
    ),
    "a Porsche 911; call 911": "a Porsche nine eleven; call nine one one",
    "Run make -j8, gcc -O2; it was -5.": "Run make dash J eight, G C C dash O two; it was negative five.",
    "Due Thu 4/12, Sat 5/9; on Wed or Fri": ("Due Thursday April twelfth, Saturday May ninth; on Wednesday or Friday"),
    "They wed. Thu Nguyen sat at 3. Sun at 5.": "They wed. Thu Nguyen sat at three. Sun at five.",
    "30 × 20 × 15 cm, 2 cm x 3 cm, 120 x 80 mm": (
        "thirty by twenty by fifteen centimeters, two centimeters by three centimeters, "
        "one hundred and twenty by eighty millimeters"
    ),
    "a 2x4 and 4x4, 12 x 15 = 180, 1024x768 pixels": (
        "a two by four and four times four, twelve times fifteen equals one hundred and eighty, "
        "ten twenty four by seven sixty eight pixels"
    ),
    "an 8' x 10' rug, 12' x 9'6\" x 8'": ("an eight foot by ten foot rug, twelve feet by nine feet six by eight feet"),
    "the 6 p.m. Delta flight; at 6 p.m. Delta left.": "the six PM Delta flight; at six PM. Delta left.",
    "You have a 10 a.m. Dr. Lee will call.": "You have a ten AM. doctor Lee will call.",
    "Enter your name, # of guests.": "Enter your name, number of guests.",
    "A small is $8/small, a trip $40/trip.": "A small is eight dollars small, a trip forty dollars per trip.",
    "Mix class 10:30 with Tom.": "Mix class ten thirty with Tom.",
    "Blend until 2:30, mix for 1:30; mix the paint 3:00; the mix starts 4:30.": (
        "Blend until two thirty, mix for one thirty; mix the paint three o'clock; the mix starts four thirty."
    ),
    "Mix it 1:10 or blend 2:30 with water": "Mix it one to ten or blend two to thirty with water",
    "Mix it 1:100.": "Mix it one to one hundred.",
    "We ship 14 kt rings. The current ring is 14 kt.": "We ship fourteen kt rings. The current ring is fourteen kt.",
    "Winds are light, ring is 14 kt. Currents of 3 kt.": (
        "Winds are light, ring is fourteen kt. Currents of three knots."
    ),
    "$40/off, $30/each, $10/day/and up, $9/monthly": (
        "forty dollars off, thirty dollars each, ten dollars per day and up, nine dollars monthly"
    ),
    "Vitamin -B12, rated -B2, make -j8": "Vitamin -B twelve, rated -B two, make dash J eight",
    "Did Ave call? Hello Ave, on Park Ave": "Did Ave call? Hello Ave, on Park Avenue",
    "I have I-9 E forms on I-80 E": "I have I nine E forms on I eighty East",
    "WW I think; WW II, WW I and so on": "WW I think; World War two, World War one and so on",
    "Friday to Mon Repos, Mon to Fri at 9": "Friday to Mon Repos, Monday to Friday at nine",
    "Then # is a comment": "Then number is a comment",
    "300 bps on dial-up": "three hundred bits per second on dial-up",
    "The 3x5=15 rule": "The three times five equals fifteen rule",
    "my grandma, Pa., and Bob of Reading, Pa., left": "my grandma, Pa., and Bob of Reading, Pennsylvania, left",
    "We met at 5 p.m. Monday was busy.": "We met at five PM. Monday was busy.",
    "The call at 5 p.m. Monday was long.": "The call at five PM Monday was long.",
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
        (
            "75μg/m³，35-50μg/m3，2L/min，80km/h",
            "七十五微克每立方米，三十五到五十微克每立方米，每分钟两升，每小时八十公里",
        ),
        ("油耗6-7L/100km，读取7GB/s，内存16GB", "油耗每一百公里六到七升，读取每秒七GB，内存十六GB"),
        ("$80/桶，5元/杯，2元/㎡/月，3元", "每桶八十美元，每杯五元，每月每平方米两元，三元"),
        ("血压135/88，120/80mmHg，答对15/20", "血压一百三十五，八十八，一百二十，八十毫米汞柱，答对二十分之十五"),
        ("2023/24赛季，2023-24学年，2023/25赛", "二零二三到二四赛季，二零二三到二四学年，2023/25赛"),
        ("iOS 17.4.1，版本2.0.1，IP为10.0.0.8", "iOS 十七点四点一，版本二点零点一，IP为一零点零点零点八"),
        ("浓度1-2%，浓度1-2，比分3-1", "浓度百分之一到二，浓度一比二，比分三比一"),
        ("面积5m²，x²，W/m²", "面积五平方米，x的平方，W/m²"),
        ("Vol.3，Ver. 2.0", "Vol 三，Ver 二点零"),
        ("100元/场次，50元/床位/晚，2元/颗粒", "每场次一百元，每晚每床位五十元，每颗粒两元"),
        ("3元/股票，8元/碗面，90元/月票，3万元/年薪", "三元/股票，八元/碗面，九十元/月票，三万元/年薪"),
        (
            "日薪300元/天包吃住，住宿200元/晚含早餐，心率72次/分正常",
            "日薪每天三百元包吃住，住宿每晚两百元含早餐，心率每分七十二次正常",
        ),
        ("比分112-108 NBA总决赛", "比分一百一十二比一百零八 NBA总决赛"),
        ("5元/天然气，5元/天起，8元/斤左右，3元/人的", "五元/天然气，每天五元起，每斤八元左右，每人三元的"),
        ("高血压占20/50例，血压12/24小时监测", "高血压占五十分之二十例，血压二十四分之十二小时监测"),
        ("血压药10/20毫克，血压计第12/24期", "血压药二十分之十毫克，血压计第二十四分之十二期"),
        ("高血压120/80，高血压为160/100", "高血压120/80，高血压为一百六十，一百"),
        ("血压正常值90/60到120/80。", "血压正常值九十，六十到一百二十，八十。"),
        ("日期24.5.12，版本24.5.12", "日期二四点五点一二，版本二十四点五点一二"),
        ("24/7客服，24/70", "七天二十四小时客服，七十分之二十四"),
    ],
)
def test_a_chinese_form_is_read_by_what_is_next_to_it(written: str, spoken: str) -> None:
    assert chinese_readings.rewrite(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("他用A17 Pro芯片。", "他用A十七Pro芯片。"),
        ("我有A good idea。", "我有A good idea。"),
        ("这是A good 3 apples。", "这是A good three apples。"),
    ],
)
def test_the_letter_of_a_number_is_no_article(written: str, spoken: str) -> None:
    assert analyzer(TINY).normalise(written) == spoken
