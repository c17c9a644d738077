"""Numbers as Chinese words. Pure functions of ASCII digits."""

import re

_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_CALLED = str.maketrans("0123456789", "零幺二三四五六七八九")
_PLACES = ("", "十", "百", "千")
_GROUPS = ("", "万", "亿", "万亿")
MOST_DIGITS = 16
"""Longer runs of digits are read digit by digit."""
NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}(?![0-9])(?:\.[0-9]{1,20})?|[0-9]{1,16}(?![0-9])(?:\.[0-9]{1,20}(?![0-9]))?)"
"""An amount: digits, in groups of three or not, and a decimal part."""
START = r"(?<![0-9])(?<![0-9]\.)"
"""Before a number: it is not part of another one."""
COUNTED = (
    "个|只|张|条|件|位(?!于|置)|名|人(?![民工])|口(?=人|之家|[锅井])|家(?![庭住长])|间|头"
    "(?=[牛猪羊驴大])|匹|棵|朵|颗|粒|枚|块(?!链)|片|双|对(?![应比面不于])|副(?!总|主)|套|台|辆|艘|架|部|本|册|篇|首|支"
    "(?!持|付)|枝|根|把(?=椅|刀|伞|钥|剪|枪|火)|杯|瓶|碗|盘|盒|箱|包(?![间厢房括])|袋|桶|罐|壶|份"
    "(?!额)|批|群|堆|串|束|组(?![织合成])|排(?![0-9]{1,3}[座号])|列|种|类(?!似)|样|项|门(?![口票锁])|节|次|遍|回"
    "(?![家来去复答])|趟|场(?![地馆次])|顿|圈|下(?![午周个降跌班线一])|倍|岁|天(?![气空津下])|周"
    "(?!年)|星期|礼拜|小时|钟头|分钟|刻钟|秒|年(?!级|代)|季度|晚(?![点上到餐饭会班])|夜|元|块(?!链)|角|毛|分"
    "(?!之)|美元|欧元|英镑|港元|日元|米|公里|千米|里(?![面程边])|英里|厘米|英尺|英寸|吨|公斤|千克|克|斤|升|毫升|毫米|"
    "平方|平米|立方|亩|公顷|度|瓦|千瓦|伏|点(?![击名评])|句|段|滴|株|所|座(?=[大城山桥塔楼岛房])|顶|扇|幅|面"
    "(?=[墙镜旗鼓锣])|桌|车(?![站次厢号牌])|胜|负|成(?![都为立功交])|折(?!叠)|步(?!行)|声|眼|者|国(?![际家道])|款|道"
    "(?=题|菜)|封|则|卷(?=纸)|厅|卫|居|室(?=[0-9两一二三]厅)|餐|层(?=楼房|别墅|小楼|的)|代人|寸|尺|海里|节课|课时"
)
"""Words after an amount that make a 2 a pair: 两个, 两年."""
PAIR = re.compile(rf"[ ]?(?:{COUNTED}|[百千万亿])")


def digits(text: str) -> str:
    """`text` with each digit replaced by its name."""
    return text.translate(_DIGITS)


def called(text: str) -> str:
    """As `digits`, with the 幺 of telephone numbers."""
    return text.translate(_CALLED)


def cardinal(number: str) -> str:
    """A run of digits as a number: `"20020"` as 两万零二十. With more than 16 digits, or a
    leading zero, digit by digit.
    """
    if len(number) > MOST_DIGITS or (len(number) > 1 and number[0] == "0"):
        return digits(number)
    if not int(number):
        return "零"
    words, gap = "", False
    groups = [number[max(0, end - 4) : end] for end in range(len(number), 0, -4)][::-1]
    for place, group in enumerate(groups):
        value = int(group)
        if not value:
            gap = bool(words)
            continue
        if words and (gap or group[0] == "0"):
            words += "零"
        scale = len(groups) - 1 - place
        # 一万零二亿 has one 亿 for both groups above it.
        words += _group(value, first=not words) + ("万" if scale == 3 and int(groups[place + 1]) else _GROUPS[scale])
        gap = False
    return "两" + words[1:] if words[:2] in ("二万", "二亿") else words


def _group(value: int, *, first: bool) -> str:
    """1 to 9999. first: nothing precedes it, so that 12 is 十二 and 200 两百."""
    words, gap, text = "", False, str(value)
    for place, digit in zip(range(len(text) - 1, -1, -1), text, strict=True):
        if digit == "0":
            gap = True
            continue
        words += "零" if gap and words else ""
        gap = False
        if digit == "1" and place == 1 and not words and first:
            words += "十"
        elif digit == "2" and place >= 2 and not words and first:
            words += "两" + _PLACES[place]
        else:
            words += digits(digit) + _PLACES[place]
    return words


def amount(number: str, after: str = "") -> str:
    """A number that counts something: groups of three are joined, the decimal part is read digit by
    digit; after: the following text, which selects 两 or 二.
    """
    whole, point, decimals = number.replace(",", "").partition(".")
    if point:
        return cardinal(whole if whole.strip("0") else "0") + "点" + digits(decimals)
    return "两" if whole == "2" and PAIR.match(after) else cardinal(whole)


def fraction(part: str, whole: str) -> str:
    """`"2", "3"` as 三分之二."""
    return f"{cardinal(whole)}分之{cardinal(part)}"


def range_word(written: str | None) -> str:
    """Return the word between the ends of a range: 至 where it is written, else 到."""
    return "至" if written and "至" in written else "到"
