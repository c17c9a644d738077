"""Chinese readings: the words around a number decide; time is linear in the text."""

import time

import pytest

from services.frontend.normalization.chinese_readings import rewrite
from services.frontend.text.chinese_numbers import amount, cardinal


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
    ],
)
def test_the_words_around_a_number_decide(text: str, spoken: str) -> None:
    assert rewrite(text) == spoken


def test_plain_words_stay() -> None:
    text = "好的，我马上为您查询：三心二意——《书》（甲）。Hello world"
    assert rewrite(text) == text


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
        rewrite(text)
        return (time.process_time() - begin) * 1000

    assert min(milliseconds(200) for _ in range(3)) < 20
    assert milliseconds(4000) < 20 * 4000 / 200 * 2


def test_one_yi_follows_both_groups_above_it() -> None:
    assert cardinal("1000200000000") == "一万零二亿"
    assert cardinal("1000000000000") == "一万亿"
