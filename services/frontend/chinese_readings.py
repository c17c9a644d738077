"""Written forms that the grammars read wrongly in Chinese, rewritten in front of them. Each rule is linear in the length of the text."""

import re
from collections.abc import Callable

_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_CALLED = str.maketrans("0123456789", "零幺二三四五六七八九")
"""In telephone numbers."""
_CURRENCIES = {"$": "美元", "＄": "美元", "€": "欧元", "£": "英镑", "¥": "元", "￥": "元"}
_SQUARES = {
    "㎡": "平方米", "㎥": "立方米", "㎞": "公里", "㎝": "厘米", "㎜": "毫米", "㎏": "千克", "㎎": "毫克", "㎖": "毫升", "㏄": "毫升",
}  # fmt: skip
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str]


def _dotted(found: re.Match[str]) -> str:
    return found[0].translate(_DIGITS).replace(".", "点")


def _phone(found: re.Match[str]) -> str:
    return f"加{found['country'].translate(_DIGITS)}，" + re.sub(r"[^0-9]", "", found["number"]).translate(_CALLED)


_RULES: tuple[Rule, ...] = (
    (re.compile(f"[{''.join(_SQUARES)}]"), lambda found: _SQUARES[found[0]]),
    (
        re.compile(
            r"(?P<sign>[$＄€£¥￥]) ?(?P<amount>[0-9][0-9,]{0,20}(?:\.[0-9]{1,6})?) ?(?P<scale>[十百千]?[万亿]|千|百)(?!元|美元|英镑|欧元)"
        ),
        lambda found: found["amount"].replace(",", "") + found["scale"] + _CURRENCIES[found["sign"]],
    ),
    (
        re.compile(r"(?<![0-9.])(?!(?:19|20)[0-9]{2}\.[01]?[0-9]\.[0-3]?[0-9](?![0-9.]))[0-9]{1,4}(?:\.[0-9]{1,4}){2,5}(?![0-9]|\.[0-9])"),
        _dotted,
    ),
    (re.compile(r"(?<![0-9])\+(?P<country>[0-9]{1,3})[ -](?P<number>[0-9][0-9 -]{5,14}[0-9])(?![0-9])"), _phone),
    (re.compile(r"(?P<amount>[0-9]) ?€(?![0-9])"), r"\g<amount>欧元"),
    (re.compile(r"(?<![A-Za-z])[Nn][Oo]\. ?(?P<number>[0-9]{1,6})(?![0-9.])"), r"\g<number>号"),
)
_INTERESTING = re.compile(f"[0-9{''.join(_SQUARES)}]")


def rewritten(text: str) -> str:
    """`text` with amounts in ten thousands of a currency, dotted numbers, foreign telephone numbers, `No.` and squared units in a form that
    is read rightly behind."""
    if not _INTERESTING.search(text):
        return text
    for pattern, spoken in _RULES:
        text = pattern.sub(spoken, text)
    return text
