"""Money, percentages, units, ranges and plain numbers as Chinese words. Each rule is linear in the
length of the text.
"""

import re

from services.frontend.text.chinese_numbers import COUNTED, NUMBER, PAIR, START, amount, digits, range_word
from services.frontend.text.rules import Rule

CURRENCIES = {
    "HK$": "港元", "US$": "美元", "NT$": "新台币", "A$": "澳元", "C$": "加元", "S$": "新加坡元", "RMB": "元",
    "CNY": "元", "USD": "美元", "EUR": "欧元", "GBP": "英镑", "HKD": "港元", "JPY": "日元", "KRW": "韩元", "$": "美元",
    "＄": "美元", "€": "欧元", "£": "英镑", "¥": "元", "￥": "元", "₩": "韩元", "₹": "卢比", "₽": "卢布", "฿": "泰铢",
    "₫": "越南盾",
}  # fmt: skip
UNITS = {
    "km/h": "每小时#公里", "kmh": "每小时#公里", "KM/H": "每小时#公里", "m/s": "每秒#米", "mph": "每小时#英里",
    "m/s²": "#米每二次方秒", "km²": "平方公里", "km2": "平方公里", "m²": "平方米", "m2": "平方米", "m^2": "平方米",
    "cm²": "平方厘米", "cm2": "平方厘米", "mm²": "平方毫米", "m³": "立方米", "m3": "立方米", "cm³": "立方厘米",
    "cm3": "立方厘米", "㎡": "平方米", "㎥": "立方米", "㎞": "公里", "㎝": "厘米", "㎜": "毫米", "㎏": "千克",
    "㎎": "毫克", "㎖": "毫升", "㏄": "毫升", "cc": "毫升", "km": "公里", "KM": "公里", "Km": "公里", "m": "米",
    "dm": "分米", "cm": "厘米", "CM": "厘米", "mm": "毫米", "MM": "毫米", "μm": "微米", "um": "微米", "µm": "微米",
    "nm": "纳米", "kg": "千克", "KG": "千克", "Kg": "千克", "g": "克", "mg": "毫克", "μg": "微克", "t": "吨",
    "ml": "毫升", "mL": "毫升", "ML": "毫升", "L": "升", "l": "升", "dl": "分升", "ha": "公顷", "hm²": "公顷",
    "hm2": "公顷", "℃": "摄氏度", "°C": "摄氏度", "° C": "摄氏度", "℉": "华氏度", "°F": "华氏度", "°": "度",
    "kWh": "千瓦时", "KWH": "千瓦时", "kwh": "千瓦时", "kW·h": "千瓦时", "W": "瓦", "kW": "千瓦", "KW": "千瓦",
    "MW": "兆瓦", "GW": "吉瓦", "V": "伏", "kV": "千伏", "mV": "毫伏", "mA": "毫安", "mAh": "毫安时", "mah": "毫安时",
    "Hz": "赫兹", "HZ": "赫兹", "kHz": "千赫兹", "MHz": "兆赫兹", "GHz": "吉赫兹", "Pa": "帕", "hPa": "百帕",
    "kPa": "千帕", "MPa": "兆帕", "N": "牛", "J": "焦耳", "kJ": "千焦", "cal": "卡", "kcal": "千卡", "dB": "分贝",
    "db": "分贝", "Ω": "欧姆", "kΩ": "千欧", "h": "小时", "hr": "小时", "min": "分钟", "s": "秒", "ms": "毫秒",
    "ft": "英尺", "lb": "磅", "lbs": "磅", "oz": "盎司", "mol": "摩尔", "mmHg": "毫米汞柱", "mg/L": "毫克每升",
    "mg/l": "毫克每升", "g/L": "克每升", "mmol/L": "毫摩尔每升", "g/cm³": "克每立方厘米", "kg/m³": "千克每立方米",
    "rpm": "转每分钟", "r/min": "转每分钟", "mmol": "毫摩尔", "μmol": "微摩尔",
    "umol": "微摩尔", "ng": "纳克", "ug": "微克", "µg": "微克",
    "dL": "分升", "w": "万", "μA": "微安", "Nm": "牛米", "N·m": "牛米", "%": "百分之#", "％": "百分之#",
    "‰": "千分之#",
}  # fmt: skip
"""The part before # precedes the amount: 80 km/h is 每小时八十公里."""
CURRENCY = "|".join(sorted(map(re.escape, CURRENCIES), key=len, reverse=True))
UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
"""Patterns, longer ones first."""


_SCALE = r"(?:[十百千]?(?:万亿|[万亿])|[百千](?!克|米|瓦|卡|帕|焦|赫|分))"
_DASH = r"[ ]?(?:--?|——?|–|−|~|～|∼)[ ]?"
_TO = rf"(?:{_DASH}|至|到)"
_BEHIND_A_COUNTER = (
    "(?!(?<=月)[票卡薪饼刊份]|(?<=天)[数津然猫]|(?<=个)[人体税性]|(?<=人)[民士员工才数均群]|(?<=次)[数日品]|"
    "(?<=件)[数商]|(?<=年)[度代卡费级龄票终薪]|(?<=分)[店期公类组数成]|(?<=节)[目日假]|(?<=场)[馆所]|(?<=位)[置于]|"
    "(?<=份)额|(?<=条)[件款]|(?<=间)[隔接]|(?<=日)[期元用本]|(?<=台)[湾式]|(?<=本)[地科人月]|(?<=周)[年边末岁]|"
    "(?<=晚)[上会餐]|(?<=夜)[间晚宵]|(?<=户)[外型口]|(?<=课)[程时堂]|(?<=股)[票份东]|(?<=手)[机续工表]|(?<=字)[体母幕]|"
    "(?<=集)团|(?<=局)[部长]|(?<=季)[度节]|(?<=包)[裹装]|(?<=杯)子|(?<=片)[区段]|(?<=碗)面|(?<=桌)面|(?<=瓶)[子装]|"
    "(?<=桶)装|(?<=磅)秤|(?<=首)页|(?<=颗)粒|(?<=米)[高宽长])"
)
"""What may not follow a counter of one character, which begins a word then: 90元/月票."""
_PER = (
    "小时|分钟|平方米|平米|立方米|公斤|千克|公里|课时|学期|季度|公顷|人次|场次|床位|场地|颗粒|个月|盎司|加仑|千字|"
    "[人天日月年周次个斤分秒件瓶位张晚夜米平套吨升只条盒包箱桶台辆本户间节课亩支份袋期季磅股手颗粒场局集杯碗片块根双床首桌趟字]"
    rf"{_BEHIND_A_COUNTER}|kg|min|m²|m³|㎡|m2|ml|mL|km|GB|h|s|L|m"
)
_PAID = (
    "[百千万亿]?(?:元|块|美元|次|滴|步|人|个|度|公里|千米|米|毫克|毫升|克|公斤|斤|吨|升|份|件|字|千瓦时|课时|转|页|分)"
)
_BELOW = re.compile(r"(?:^|[是为在到至约低温于达零得等有：:，,。；;（(=额差值从降量\s~～比个、])$")
_SIGNED = r"(?:(?P<sign>[-−＋+±])(?=[0-9]))?"
_TIMES = ("h", "hr", "min", "s")
_SHORT_UNIT = re.compile(r"[A-Za-z] ?$")


def _sign(match: re.Match[str], after: str) -> str:
    """The word of a sign before a number; a dash after a name (歼-20) is silent."""
    sign = match["sign"]
    if not sign:
        return ""
    if sign in "-−":
        before = match.string[: match.start()][-1:]
        return (
            "负" if _BELOW.search(before) or re.match(r"[ ]?(?:[%％‰]|℃|°|摄氏|到)", after) or PAIR.match(after) else ""
        )
    return "正负" if sign == "±" else "加"


def _money(match: re.Match[str]) -> str:
    unit = CURRENCIES[match["unit"]]
    words = amount(match["first"], match["scale"] or unit) + (match["scale"] or "")
    if match["last"]:
        words += (
            range_word(match["to"]) + amount(match["last"], match["lastscale"] or unit) + (match["lastscale"] or "")
        )
    return _every(match) + ("负" if match["sign"] else "") + words + unit


def _coded(match: re.Match[str]) -> str:
    scale = match["scale"] or ""
    return amount(match["number"], scale or "元") + scale + CURRENCIES[match["unit"]]


def _one(number: str, scale: str, unit: str) -> str:
    head, _, tail = UNITS[unit].rpartition("#")
    return head + amount(number, scale or tail) + scale + tail


def _with_unit(match: re.Match[str]) -> str:
    """One or two numbers with a Latin unit. After a name a single letter is no unit (iPhone 5s),
    and neither is the g of 4g网络.
    """
    unit, scale, first = match["unit"], match["scale"] or "", match["first"]
    before, after = match.string[: match.start()][-2:], match.string[match.end() :][:2]
    named = (
        len(unit) == 1
        and unit.isalpha()
        and (_SHORT_UNIT.search(before) or (unit == "g" and re.match("网|信|手机|时代|套|基站", after)))
    )
    if named:
        return match[0]
    sign = _sign(match, unit)
    if first is None:
        return sign + _one(match["last"], scale, unit)
    inner = range_word(match["to"]) + ("负" if match["inner"] else "")
    if match["firstunit"]:
        return sign + _one(first, "", match["firstunit"]) + inner + _one(match["last"], scale, unit)
    head, _, tail = UNITS[unit].rpartition("#")
    return sign + head + amount(first, scale or tail) + inner + amount(match["last"], scale or tail) + scale + tail


def _each(match: re.Match[str]) -> str:
    counted = match["counted"]
    first = amount(match["first"], counted) + range_word(match["to"]) if match["first"] else ""
    return f"{_every(match)}{first}{amount(match['last'], counted)}{counted}"


def _every(match: re.Match[str]) -> str:
    """What a price is for; the last of two comes first: 元/㎡/月 is 每月每平方米."""
    return "".join(f"每{UNITS.get(one, one)}" for one in (match["also"], match["per"]) if one)


def _rate(match: re.Match[str]) -> str:
    """A unit for each of another: 75 μg/m³ is 七十五微克每立方米, with a time 每分钟两升."""
    unit, per, number = match["unit"], match["per"], match["number"]
    if not number and (f"{unit}/{per}" in UNITS or "#" in UNITS[unit] + UNITS[per] or "w" in (unit, per)):
        return match[0]
    first = amount(match["first"], UNITS[unit]) + range_word(match["to"]) if match["first"] else ""
    words = first + _one(match["last"], "", unit)
    if number:
        return f"每{_one(number, '', per)}{words}"
    return f"每{UNITS[per]}{words}" if per in _TIMES else f"{words}每{UNITS[per]}"


def _more(match: re.Match[str]) -> str:
    scale = match["scale"] or ""
    return amount(match["number"], scale) + scale + ("加" if scale in ("万", "亿") else "多")


def _range(match: re.Match[str]) -> str:
    """A short dash between numbers that do not rise is a minus."""
    first, last, after = match["first"], match["last"], match.string[match.end() :][:4]
    counted = "" if match.string[: match.start()].endswith("第") else after
    scale = match["scale"] or ""
    rises = match["inner"] or scale or float(first.replace(",", "")) < float(last.replace(",", ""))
    if not rises and match["to"].strip() in ("-", "−"):
        named = match.string[: match.start()].endswith(
            ("号", "址", "室", "栋", "楼", "路", "型", "第", "座", "区", "排")
        )
        return _sign(match, "") + amount(first) + ("杠" if named else "减") + amount(last)
    inner = range_word(match["to"]) + ("负" if match["inner"] else "")
    return _sign(match, "到") + amount(first, scale or counted) + scale + inner + amount(last, counted)


def _plain(match: re.Match[str]) -> str:
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:4]
    return _sign(match, after) + amount(match["number"], "" if before == "第" else after)


RULES: tuple[Rule, ...] = (
    (
        re.compile(rf"{START}(?P<meters>[0-9])米(?P<rest>[0-9]{{1,2}})(?![0-9.]|[ ]?(?:{COUNTED}|[厘A-Za-z])|[-~～])"),
        lambda match: f"{amount(match['meters'], '米')}米{digits(match['rest'])}",
    ),
    (
        re.compile(rf"(?<=[0-9万亿千百])(?P<unit>{COUNTED}|[万亿楼层号室栋章月日集期级届版页]){_DASH}(?=[0-9])"),
        r"\g<unit>到",
    ),
    (
        re.compile(
            rf"(?P<sign>[-−])?(?<![A-Za-z])(?P<unit>{CURRENCY})[ ]?(?P<first>{NUMBER})[ ]?(?P<scale>{_SCALE})?"
            rf"(?:(?P<to>{_TO})(?:(?P=unit))?[ ]?(?P<last>{NUMBER})[ ]?(?P<lastscale>{_SCALE})?)?(?:元|美元|英镑|欧元|"
            rf"港币)?(?:/(?P<per>{_PER})(?:/(?P<also>{_PER}))?(?![A-Za-z]))?"
        ),
        _money,
    ),
    (
        re.compile(
            rf"{START}(?P<number>{NUMBER})[ ]?(?P<scale>{_SCALE})?[ ]?(?P<unit>RMB|CNY|USD|EUR|GBP|HKD|JPY|KRW|"
            rf"[€£¥￥$₩₹₽฿])(?![0-9A-Za-z])"
        ),
        _coded,
    ),
    (
        re.compile(
            rf"{START}(?:(?P<first>{NUMBER})(?P<to>{_TO}))?(?P<last>{NUMBER})[ ]?(?P<counted>{_PAID})/(?P<per>{_PER})"
            rf"(?:/(?P<also>{_PER}))?(?![A-Za-z])"
        ),
        _each,
    ),
    (
        re.compile(
            rf"(?<![0-9A-Za-z.])(?:(?P<first>{NUMBER})(?P<to>{_TO}))?(?P<last>{NUMBER})[ ]?(?P<unit>{UNIT})/"
            rf"(?:(?P<number>10{{0,4}})[ ]?)?(?P<per>{UNIT})(?![A-Za-z0-9²³])"
        ),
        _rate,
    ),
    # Units of data stay letters.
    (
        re.compile(rf"{START}(?P<number>{NUMBER})[ ]?(?P<unit>[KkMGT][Bb])/s(?![A-Za-z0-9])"),
        lambda match: f"每秒{amount(match['number'], match['unit'])}{match['unit']}",
    ),
    (
        re.compile(
            rf"(?<![0-9A-Za-z.]){_SIGNED}(?:(?P<first>{NUMBER})[ ]?(?P<firstunit>{UNIT})?(?P<to>{_TO})"
            rf"(?P<inner>[-−])?)?(?P<last>{NUMBER})[ ]?(?P<scale>[百千万亿])?(?P<unit>{UNIT})"
            rf"(?:(?<=[%％‰])|(?![A-Za-z0-9]|/[A-Za-z]))"
        ),
        _with_unit,
    ),
    (re.compile(rf"(?<![0-9.,])(?P<number>{NUMBER})(?P<scale>[万亿千百])?\+(?=[^0-9A-Za-z+=]|$)"), _more),
    (
        re.compile(
            rf"(?<![0-9A-Za-z./:]){_SIGNED}(?P<first>{NUMBER})(?P<scale>{_SCALE})?(?P<to>{_TO})(?P<inner>[-−])?"
            rf"(?P<last>{NUMBER})(?![0-9A-Za-z]|[-~～—:：./][0-9A-Za-z])"
        ),
        _range,
    ),
    (
        re.compile(
            rf"(?<![0-9])(?<![0-9][./:eE-]){_SIGNED}(?P<number>{NUMBER})(?![0-9]|[./:][0-9]|-[0-9]|[eE][0-9+-])"
        ),
        _plain,
    ),
)
