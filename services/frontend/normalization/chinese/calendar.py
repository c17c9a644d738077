"""Dates, years and times of day as Chinese words. Each rule is linear in the length of the text."""

import re

from services.frontend.text.chinese_numbers import START, cardinal, digits, range_word
from services.frontend.text.rules import Rule

_TO = r"[ ]?(?:-|--|—|——|–|~|～|至|到)[ ]?"
_DASH = r"[ ]?(?:--?|——?|–|~|～)[ ]?"
_YEAR = r"(?:1[0-9]|20)[0-9]{2}"
_HOUR, _SIXTY = r"(?:2[0-4]|[01]?[0-9])", r"[0-5][0-9]"
_BEFORE_SPAN = (
    "有|近|约|达|长达|超过|历经|历时|度过|距今|已有|延续|持续|走过|经过|过了|传承|跨越|存在了?|了|整整|前后|大概|几乎|"
    "不到|将近"
)
_BEHIND_SPAN = "的?(?:历史|文明|岁月|时间|光阴|寿命|传统|以来|以前|间)|(?:老字号|古城|古镇|古树|老店|古都|来)"
_ENTRY = (
    "毕业|出生|入学|入职|入伍|参加|底|初|末|春|夏|秋|冬|[上下]半年|生(?![意活产])|级|就|才|结婚|来|去|的时候|那|考|"
    "高考|款|时"
)
_NUMBERED = "级(?!别)|款|版(?!本)|届|赛季|财年|年|春夏|秋冬|奥运|世界杯|高考|春晚|欧洲杯|亚运|秋招|春招|国庆|春节"


def _date(match: re.Match[str]) -> str:
    day = f"{cardinal(match['day'].lstrip('0'))}日" if match["day"] else ""
    return f"{digits(match['year'])}年{cardinal(match['month'].lstrip('0'))}月{day}"


def _month_and_day(match: re.Match[str]) -> str:
    return (
        cardinal(match["month"].lstrip("0") or "0") + "月" + cardinal(match["day"].lstrip("0") or "0") + match["ends"]
    )


def clock(hours: str, minutes: str | None, seconds: str | None = None) -> str:
    """`"9", "05"` as 九点零五分; the full hour as the hour alone."""
    hour = hours.lstrip("0") or "0"
    words = ("两" if hour == "2" else cardinal(hour)) + "点"
    if minutes is not None and (minutes != "00" or seconds not in (None, "00")):
        words += _two(minutes) + "分"
    return words + (_two(seconds) + "秒" if seconds is not None and seconds != "00" else "")


def _two(number: str) -> str:
    return "零" + cardinal(number[1]) if number[0] == "0" and number != "00" else cardinal(number.lstrip("0") or "0")


_TIME = re.compile(
    rf"(?P<hours>{_HOUR})[:：](?P<minutes>{_SIXTY})(?:[:：](?P<seconds>{_SIXTY}))?"
    rf"(?:[ ]?(?P<half>[AaPp])\.?[Mm](?![A-Za-z]))?"
)
_CLOCK = rf"{_HOUR}[:：]{_SIXTY}(?:[:：]{_SIXTY})?(?:[ ]?[AaPp]\.?[Mm](?![A-Za-z]))?"


def _times(match: re.Match[str]) -> str:
    has_period = re.search("(?:[上下中]午|晚上?|凌晨|早上?|清晨|傍晚|夜里)[ ]?$", match.string[: match.start()][-3:])
    halves = {} if has_period else {"a": "上午", "p": "下午"}
    return range_word(match[0]).join(
        halves.get((one["half"] or "").lower(), "") + clock(one["hours"], one["minutes"], one["seconds"])
        for one in _TIME.finditer(match[0])
    )


def _years(match: re.Match[str]) -> str:
    return f"{digits(match['first'])}{match['unit']}{range_word(match['to'])}{digits(match['last'])}{match['ends']}"


def _year(match: re.Match[str]) -> str:
    """A year digit by digit, a duration of years as a number."""
    number, before, after = match["year"], match.string[: match.start()][-6:], match.string[match.end() :][:6]
    lasting = re.search(f"(?:{_BEFORE_SPAN})[ ]?$", before) or re.match(_BEHIND_SPAN, after)
    if len(number) == 2:
        entry = re.match(_ENTRY, after) or (int(number) >= 60 and after.startswith("的"))
        is_year = number[0] == "0" or ((entry or re.search("[于从自]$", before)) and not lasting)
    elif len(number) == 3:
        is_year = re.search("[于在]$|公元$", before) and not lasting
    else:
        round_span = number.endswith("00") and (lasting or re.match("[前后]", after))
        is_year = 1000 <= int(number) <= 2100 and not round_span
    month_follows = re.match("[ ]?[0-9]{1,2}月", after)
    return (digits(number) if is_year or month_follows else cardinal(number)) + "年"


_DAY_FOLLOWS = re.compile(
    "[ ]?(?:放假|开[学会始幕盘业]|截止|结束|到期|上[线映市架]|发[布货售车]|出发|启程|回[国来家]|见面?|举[行办]|生效|"
    "晚上?|早上?|上午|下午|中午|凌晨|周[一二三四五六日天]|星期|[(（]周|之?前(?!面)|之?后"
    "(?!面)|以[前后]|当天|那天|是[^0-9\n。！？；，]{0,6}[节日]|[到至—~-][0-9]{1,2}/[0-9])"
)
_DAY_BEFORE = re.compile(
    "(?:日期|截[止至]|生日|时间|定[于在]|改[到在期]|推迟[到至]|提前[到至]|到期|"
    "[0-9]/[0-9]{1,2}[ ]?[到至—~-])[到在于是为日期时间：:]{0,3}[ ]?$"
)
_RESULT = re.compile("(?:[=是为得]|等于|约|占)[ ]?$")


def _slashed(match: re.Match[str]) -> str:
    """A day of a month, by the words around it or because no fraction is written like this (`5/1`,
    `10/7`); else unchanged.
    """
    month, day, text = match["month"].lstrip("0"), match["day"].lstrip("0"), match.string
    before = text[max(0, match.start() - 10) : match.start()]
    is_date = _DAY_BEFORE.search(before) or _DAY_FOLLOWS.match(text, match.end())
    improper = int(month) > int(day) and not _RESULT.search(before)
    return f"{cardinal(month)}月{cardinal(day)}日" if is_date or improper else match[0]


def _season(match: re.Match[str]) -> str:
    """Two years of which the second follows the first; other pairs stay."""
    first, last = match["first"], match["last"]
    follows = (int(first) + 1) % 100 == int(last) % 100
    return f"{digits(first)}到{digits(last)}" if follows else match[0]


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            rf"{START}(?P<first>(?:19|20)[0-9]{{2}})[/-](?P<last>(?:19|20)?[0-9]{{2}})"
            "(?=[ ]?(?:赛季|学年|财年|年度|雪季))"
        ),
        _season,
    ),
    (
        re.compile(rf"{START}(?P<first>{_YEAR})(?P<unit>年?)(?P<to>{_TO})(?P<last>{_YEAR})(?P<ends>学?年度?)(?!级|代)"),
        _years,
    ),
    (
        re.compile(
            rf"{START}(?P<first>19[0-9]{{2}}|20[0-4][0-9])(?P<unit>)(?P<to>{_DASH})(?P<last>19[0-9]{{2}}|20[0-4][0-9])"
            rf"(?P<ends>)(?![0-9元个人米%.,-])"
        ),
        _years,
    ),
    (
        re.compile(
            rf"{START}(?P<year>{_YEAR})(?P<mark>[-/.])(?P<month>0?[1-9]|1[0-2])(?P=mark)"
            rf"(?P<day>0?[1-9]|[12][0-9]|3[01])日?(?![0-9]|[./-][0-9])"
        ),
        _date,
    ),
    (
        re.compile(
            rf"{START}(?P<year>19[0-9]{{2}}|20[0-9]{{2}})[-/](?P<month>0[1-9]|1[0-2])(?P<day>)(?![0-9]|[./-][0-9])"
        ),
        _date,
    ),
    (re.compile(rf"(?<=[0-9])(?P<unit>[年月日号]){_DASH}(?=[0-9]{{1,4}}[年月日号])"), r"\g<unit>到"),
    (
        re.compile(
            r"(?<![0-9./／A-Za-z+×÷=-])(?<![+×÷=-] )(?P<month>0?[1-9]|1[0-2])"
            r"/(?P<day>0?[1-9]|[12][0-9]|3[01])(?![0-9./／A-Za-z%+×÷=]|[ ][+×÷=-])"
        ),
        _slashed,
    ),
    (
        re.compile(rf"{START}(?P<month>0?[1-9]|1[0-2])月(?P<day>0?[1-9]|[12][0-9]|3[01])(?P<ends>[日号])"),
        _month_and_day,
    ),
    (re.compile(rf"{START}(?P<decade>[0-9]0|[0-9]5)后(?![0-9面来])"), lambda match: digits(match["decade"]) + "后"),
    (re.compile(rf"{START}(?P<decade>{_YEAR})年代"), lambda match: digits(match["decade"]) + "年代"),
    (re.compile(rf"{START}(?P<decade>00)年代"), "零零年代"),
    (re.compile(rf"{START}(?P<year>[0-9]{{2,4}})年(?!代|级|[上中下]?前期)"), _year),
    (re.compile(rf"{START}(?P<year>20[0-4][0-9]|19[0-9]{{2}})(?={_NUMBERED})"), lambda match: digits(match["year"])),
    (
        re.compile(rf"{START}(?P<month>0?[1-9]|1[0-2])(?P<unit>月份?)"),
        lambda match: cardinal(match["month"].lstrip("0")) + match["unit"],
    ),
    (
        re.compile(rf"{START}(?P<month>[1-9]|1[0-2])·(?P<day>[1-9]|[12][0-9]|3[01])(?![0-9])"),
        lambda match: digits(match[1]) + digits(match[2]),
    ),
    (re.compile(rf"{START}(?<![:：]){_CLOCK}(?:{_TO}{_CLOCK})?(?![0-9]|[:：][0-9])"), _times),
    (
        re.compile(rf"{START}(?P<hours>{_HOUR})点(?P<minutes>{_SIXTY})(?P<ends>分?)(?![0-9.%])"),
        lambda match: clock(match["hours"], None) + _two(match["minutes"]) + match["ends"],
    ),
)
