"""Chinese reading rules in their order, which run before the grammars; and those for signs, list
markers and file names. The grammars read what no rule matches.

Rules are tried in order: identifiers (telephone, room, flight) before dates, dates before
arithmetic, and plain numbers last. A rule decides by the words around a number. Each is linear in
the length of the text: every repetition is bounded.
"""

import re
import unicodedata

from services.frontend.normalization.chinese import arithmetic as chinese_arithmetic
from services.frontend.normalization.chinese import calendar as chinese_calendar
from services.frontend.normalization.chinese import codes as chinese_codes
from services.frontend.normalization.chinese import quantities as chinese_quantities
from services.frontend.text.chinese_numbers import cardinal, digits, fraction
from services.frontend.text.rules import Rule, apply_rules

_HAN = "\u3400-\u9fff"
_WIDE = str.maketrans("＋－＝＜＞％＆＃＠＊／", "+-=<>%&#@*/")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_ROMAN = {chr(0x2160 + place): cardinal(str(place + 1)) for place in range(12)}
_IN_LETTERS = {
    numeral: cardinal(str(value))
    for value, numeral in enumerate(
        ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV"), start=1
    )
}
_FILES = (
    "pdf|docx?|xlsx?|pptx?|txt|csv|json|xml|ya?ml|jpe?g|png|gif|svg|mp[34]|wav|avi|mov|zip|rar|gz|exe|apk|ipa|dmg|iso|"
    "html?|css|jsx?|tsx?|py|java|cpp|go|rs|sh|md|log|ini|conf|dll|net|psd|ai|sql|bat"
)


_RELATIONS = {"<": "小于", ">": "大于", "=": "等于"}


def _circled(match: re.Match[str]) -> str:
    words = cardinal(str(unicodedata.digit(match[0], None) or int(unicodedata.numeric(match[0]))))
    before = match.string[: match.start()].rstrip()[-1:]
    return words + ("、" if not before or before in "。；;，,：:\n！？、" else "")


def _vulgar(match: re.Match[str]) -> str:
    part, _, whole = unicodedata.normalize("NFKD", match["part"]).partition("\u2044")
    return (cardinal(match["ones"]) + "又" if match["ones"] else "") + fraction(part, whole)


_FIRST: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z])(?P<name>[Vv]ol|[Vv]er|[Cc]h|[Ff]ig|[Ee]p|[Ss]ec)\.[ ]?(?=[0-9])"), r"\g<name> "),
    (re.compile(r"(?<![A-Za-z0-9/])24/7(?![0-9/])"), "七天二十四小时"),
    (re.compile("[①-⑳⓪]"), _circled),
    (re.compile("(?P<ones>[0-9]{1,3})?(?P<part>[¼-¾⅓-⅞])"), _vulgar),
    (re.compile("[Ⅰ-Ⅻ]"), lambda match: _ROMAN[match[0]]),
    (
        re.compile(
            "(?<=第)(?P<number>[IVX]{1,5})(?=[ ]?[章节部卷册篇集回条幕季代期类阶级])|(?<![A-Za-z0-9])"
            "(?:(?P<several>I{2,3}|IV|VI{1,3}|IX|XI{1,2})(?=[期级型类度])|(?P<one>I)(?=型糖尿|[期级]临床|类错误))"
        ),
        lambda match: _IN_LETTERS.get(match[0], match[0]),
    ),
    (re.compile("[₀-₉]{1,8}"), lambda match: digits(match[0].translate(_SUBSCRIPTS))),
    (
        re.compile(r"(?m)^[ \t]{0,8}(?P<number>[0-9]{1,3})(?:[)）]|[.．](?![0-9]))[ ]?(?=[^\s0-9])"),
        lambda match: cardinal(match["number"]) + "、",
    ),
    (
        re.compile(r"(?<=[。；;：:！？])[ ]?(?P<number>[0-9]{1,2})[)）.](?![0-9])[ ]?"),
        lambda match: cardinal(match["number"]) + "、",
    ),
    (
        re.compile(rf"[(（](?P<number>[0-9]{{1,2}})[)）](?=[ ]?[{_HAN}A-Za-z])"),
        lambda match: cardinal(match["number"]) + "、",
    ),
    (
        re.compile(r"(?<![A-Za-z])[Nn][Oo]\. ?(?P<number>[0-9]{1,6})(?![0-9.])"),
        lambda match: cardinal(match["number"]) + "号",
    ),
    (re.compile(rf"(?P<number>[0-9]{{1,4}})#(?=[ ]?[{_HAN}])"), lambda match: cardinal(match["number"]) + "号"),
    (
        re.compile(rf"(?P<number>[0-9]{{3,16}})\.(?=(?:{_FILES})(?![A-Za-z0-9.]))"),
        lambda match: digits(match["number"]) + "点",
    ),
    (re.compile(rf"(?<=[A-Za-z0-9_{_HAN}-])\.(?=(?:{_FILES})(?![A-Za-z0-9.]))"), "点"),
)
"""Before the rules for numbers."""

_LAST: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z</])(?P<letter>[A-Za-z])[ ]?>[ ]?(?=[A-Za-z](?![A-Za-z]))"), r"\g<letter>大于"),
    # A path through menus has two steps or more.
    (
        re.compile(rf"(?:[{_HAN}A-Za-z]{{1,12}}[ ]?[>→][ ]?){{2,8}}(?=[{_HAN}A-Za-z])"),
        lambda match: re.sub("[ ]?[>→][ ]?", "，", match[0]),
    ),
    (re.compile(r"#号?(?=键)|(?<=[按拨输入])#号?|(?<=[*号][和或、])#"), "井号"),
    (re.compile(r"\*号?(?=键)|(?<=[按拨打入])\*号?"), "星号"),
    (re.compile("(?<=[零一二三四五六七八九幺])#(?=[^0-9A-Za-z]|$)"), "井号"),
    (re.compile(r"#号"), "井号"),
    (re.compile(r"(?<=[CF])#"), " sharp"),
    (re.compile(rf"@(?=[ ]?[{_HAN}A-Za-z])"), "艾特"),
    (re.compile(r"(?<=[A-Za-z])[ ]?&[ ]?(?=[A-Za-z])"), " and "),
    (re.compile(rf"(?<=[{_HAN}A-Za-z0-9])[ ]?&[ ]?(?=[{_HAN}A-Za-z0-9])"), "和"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?\+[ ]?(?=[{_HAN}A-Za-z])|(?<=[A-Za-z])\+(?=[{_HAN}])(?!级|等|的|店)"), "加"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?=[ ]?(?=[{_HAN}A-Za-z])|(?<=[A-Za-z])[ ]?=[ ]?(?=[{_HAN}])"), "等于"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?[>＞][ ]?(?=[{_HAN}A-Za-z])|(?<=[A-Za-z])[ ]?>[ ]?(?=[{_HAN}])"), "大于"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?[<＜][ ]?(?=[{_HAN}A-Za-z])|(?<=[A-Za-z])[ ]?<[ ]?(?=[{_HAN}])"), "小于"),
    (
        re.compile(r"(?<![A-Za-z<][A-Za-z])(?<=[A-Za-z])[ ]?(?P<sign>[<>=])[ ]?(?=[A-Za-z](?![A-Za-z>]))"),
        lambda match: _RELATIONS[match["sign"]],
    ),
    (re.compile("[ ]?≥[ ]?"), "大于等于"),
    (re.compile("[ ]?≤[ ]?"), "小于等于"),
    (re.compile("[ ]?≠[ ]?"), "不等于"),
    (re.compile("[ ]?±[ ]?"), "正负"),
    (re.compile(rf"(?<=[{_HAN}A-Za-z])[ ]?≈[ ]?(?=[{_HAN}A-Za-z])"), "约等于"),
    (re.compile(r"≈[ ]?|[~～∼](?=[零一二两三四五六七八九十百])"), "约"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?×[ ]?(?=[{_HAN}])"), "乘"),
    (re.compile(rf"(?<=[{_HAN}])[ ]?÷[ ]?(?=[{_HAN}])"), "除以"),
    (
        re.compile(
            "(?<=[零一二三四五六七八九十日号周点])(?:-|–|—|~|～)(?=周[一二三四五六日天]|[一二三四五六七八九十])"
        ),
        "到",
    ),
    (re.compile("(?<=[零一二三四五六七八九十百千万亿点])%"), "个百分点"),
    (re.compile(r"(?<=[万亿])\+(?![0-9])"), "加"),
    (re.compile("℃"), "摄氏度"),
    (re.compile("℉"), "华氏度"),
    (re.compile("№[ ]?"), "编号"),
)
"""After the rules for numbers."""


_VERSION = re.compile(r"(?:[A-Za-z]|版本?|系统|升级|更新|固件)[^0-9。！？；，\n]{0,4}$")


def _dotted(match: re.Match[str]) -> str:
    """Digit by digit, but for the first part of a version: iOS 17.4.1. Elsewhere three parts may be
    a date.
    """
    first, *parts = match[0].split(".")
    named = _VERSION.search(match.string, max(0, match.start() - 8), match.start()) is not None
    is_version = named and len(parts) == 2 and len(first) == 2 and first[0] != "0"
    return "点".join([cardinal(first) if is_version else digits(first), *map(digits, parts)])


_DOTTED: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![0-9.])(?!(?:19|20)[0-9]{2}\.[01]?[0-9]\.[0-3]?[0-9](?![0-9.]))[0-9]{1,4}(?:\.[0-9]{1,4}){2,5}"
            r"(?![0-9]|\.[0-9])"
        ),
        _dotted,
    ),
)
"""Versions and IP addresses."""
_RULES: tuple[Rule, ...] = (
    *_FIRST,
    *_DOTTED,
    *chinese_codes.RULES,
    *chinese_arithmetic.SCORES,
    *chinese_calendar.RULES,
    *chinese_arithmetic.RULES,
    *chinese_quantities.RULES,
)
_NUMERIC = re.compile("第[IVX]|[IVX]{2}|I[期级型类]|[0-9①-⑳⓪¼-¾⅓-⅞Ⅰ-Ⅻ₀-₉]|\\.[a-z]")
_SIGNED = re.compile("[-#*@&+=<>≥≤≠±≈~～×÷%℃℉№–—]")


def rewrite(text: str) -> str:
    """`text` with its numbers and signs as words."""
    text = text.translate(_WIDE)
    if _NUMERIC.search(text):
        text = apply_rules(_RULES, text)
    return apply_rules(_LAST, text) if _SIGNED.search(text) else text
