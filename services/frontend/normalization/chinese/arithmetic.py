"""Arithmetic, fractions, ratios and scores as Chinese words. Each rule is linear in the length of
the text.
"""

import re

from services.frontend.text.chinese_numbers import NUMBER, START, amount, cardinal, fraction
from services.frontend.text.rules import Rule

_WON = "战?胜|击败|[大小完险惜]?[胜败负]|领先|获胜|取胜|落后|赢|输|打?平|逆转|横扫|拿下|淘汰|力克|告负|不敌|险胜"
_OPERATORS = {
    "+": "加", "-": "减", "−": "减", "×": "乘", "*": "乘", "x": "乘", "X": "乘", "·": "乘", "÷": "除以", "=": "等于",
    "≈": "约等于", "≠": "不等于", "<": "小于", ">": "大于", "≤": "小于等于", "≥": "大于等于", "<=": "小于等于",
    ">=": "大于等于", "!=": "不等于", "==": "等于", "±": "正负",
}  # fmt: skip
_RELATION = "[<>!=]=|[=≈≠<>≤≥]"
_TIMES = r"[xX](?=[ ]?[(（0-9√])"
"""Elsewhere an x is a letter."""
_OPERAND = (
    rf"(?>[(（]{{0,3}}[-−±√]?(?:{NUMBER}[%％]?(?:(?!{_TIMES})[a-zA-Zπ])?|[a-zA-Zπ]|…{{1,2}}|⋯|\.{{3}})"
    r"(?:\^-?[0-9]{1,3}|[²³⁰¹⁴-⁹])?(?:!(?!=))?[)）]{0,3})"
)
_FURTHER = rf"(?:[ ]?(?:{_RELATION}|[-−+×*÷/·±]|{_TIMES})[ ]?{_OPERAND})"
"""Both match in one way only, so that a failing expression causes no backtracking."""
_TOKEN = re.compile(
    rf"(?P<number>{NUMBER})(?P<percent>[%％]?)|\^(?P<power>-?[0-9]{{1,3}})|(?P<operator>[<>!=]=|[-−+×*÷/=≈≠<>≤≥±·])|(?P<other>.)",
    re.DOTALL,
)
_RELATED = re.compile(_RELATION)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SPLIT = re.compile(r"(?<=[0-9)）%％²³a-z])[ ]?[xX][ ]?(?=[(（0-9])")


def _power(number: str) -> str:
    value = ("负" if number.startswith("-") else "") + cardinal(number.lstrip("-"))
    return {"二": "的平方", "三": "的立方"}.get(value, f"的{value}次方")


def _expression(match: re.Match[str]) -> str:
    return _sum(match[0])


def _related(match: re.Match[str]) -> str:
    return _sum(match[0]) if _RELATED.search(match[0]) else match[0]


def _sum(written: str) -> str:
    """The words of a row of operands and operators. A slash between numbers is a fraction where the
    first is smaller, else a division.
    """
    text = _SPLIT.sub("×", written)
    text = re.sub(r"(?<![0-9.])([0-9]{1,6})/([0-9]{1,6})(?![0-9.])", _slash, text)
    words, operand = "", False
    for token in _TOKEN.finditer(text):
        if token["number"]:
            words += ("百分之" if token["percent"] else "") + amount(token["number"], "a" if token["percent"] else "")
            operand = True
        elif token["power"]:
            words += _power(token["power"])
        elif token["operator"]:
            operator = token["operator"]
            if words.endswith("到"):
                continue
            if operator in "-−" and not operand:
                words += "负"
            else:
                words += "除以" if operator == "/" else _OPERATORS[operator]
            operand = False
        elif token["other"] in "⁰¹²³⁴⁵⁶⁷⁸⁹":
            words += _power(token["other"].translate(_SUPERSCRIPTS))
        elif token["other"] in "√!":
            words += "根号" if token["other"] == "√" else "的阶乘"
        elif token["other"] in "…⋯.":
            words = (
                words
                if words.endswith("到")
                else words.rstrip("加减乘") + ("一直加到" if words.endswith("加") else "一直到")
            )
        elif token["other"] not in " ()（）":
            words += token["other"]
            operand = True
    return words


def _slash(match: re.Match[str]) -> str:
    left, right = match[1], match[2]
    return fraction(left, right) if int(left) < int(right) else f"{cardinal(left)}除以{cardinal(right)}"


def _ratio(match: re.Match[str]) -> str:
    return "比".join(amount(number) for number in re.split("[ ]?[-—:：∶][ ]?", match["ratio"]))


def _score(match: re.Match[str]) -> str:
    return match["lead"] + _ratio(match)


def _pressure(match: re.Match[str]) -> str:
    """Systole and diastole; other pairs behind a word for it stay (高血压占20/50例)."""
    pairs = [(match["above"], match["below"])]
    if match["higher"]:
        pairs.append((match["higher"], match["lower"]))
    if any(
        int(above) <= int(below) or (match["lead"] and not (int(above) in _SYSTOLE and int(below) in _DIASTOLE))
        for above, below in pairs
    ) or (match["lead"] is None and match["unit"] is None):
        return match[0]
    unit = "毫米汞柱" if match["unit"] else ""
    joint = re.sub("[ ]?[-—~～–][ ]?", "到", match["joint"] or "")
    return f"{match['lead'] or ''}{joint.join(f'{cardinal(above)}，{cardinal(below)}' for above, below in pairs)}{unit}"


def _parts(match: re.Match[str]) -> str:
    """Equal numbers are shares (50/50); other numbers with a slash that are no small fraction
    stay.
    """
    part, whole = match["part"], match["whole"]
    if int(whole) and (int(part) < int(whole) or int(whole) <= 10):
        return (cardinal(match["ones"].strip()) + "又" if match["ones"] else "") + fraction(part, whole)
    return match[0] if part != whole else f"{cardinal(part)}比{cardinal(whole)}"


_SYSTOLE, _DIASTOLE = range(60, 261), range(30, 161)
_BETWEEN = r"(?:(?!血压)[^0-9\n。！？；，药第])"
_PAIR = rf"{NUMBER}[ ]?[-—:：∶][ ]?{NUMBER}"
_SHARES = rf"{NUMBER}(?:[ ]?[:：∶][ ]?{NUMBER}){{1,4}}"
SCORES: tuple[Rule, ...] = (
    (
        re.compile(
            rf"(?P<lead>(?:比分|总分|大比分|比例尺?|比率|配比|赔率|之比|分辨率|宽高比|长宽比|浓度|稀释|"
            rf"按照?)[^0-9\n。！？；，]{{0,6}})(?P<ratio>{_SHARES}|"
            rf"{_PAIR}(?![.,][0-9]|[ ]?(?:[a-zμµ%％‰℃°]|[LVAWM](?![A-Za-z]))))(?![0-9:：])"
        ),
        _score,
    ),
    (
        re.compile(
            rf"(?P<lead>(?<![高低])血压{_BETWEEN}{{0,6}}|血压{_BETWEEN}{{0,5}}[为是达到]{_BETWEEN}{{0,2}})?"
            r"(?<![0-9./])(?P<above>[0-9]{2,3})/(?P<below>[0-9]{2,3})(?![0-9])"
            r"(?:(?P<joint>[降升涨]?[到至为]|[、，或和与]|[ ]?[-—~～–][ ]?)"
            r"(?P<higher>[0-9]{2,3})/(?P<lower>[0-9]{2,3}))?"
            "(?![0-9./年月日]|[ ]?(?:[例期人次天名个片粒周岁位户份]|小时|毫[克升]|mg))(?P<unit>[ ]?(?:mmHg|毫米汞柱))?"
        ),
        _pressure,
    ),
    (re.compile(rf"(?P<lead>以[ ]?){START}(?P<ratio>{_PAIR})(?![0-9:：元个])"), _score),
    (
        re.compile(
            rf"(?P<lead>){START}(?<![:：])(?P<ratio>[0-9]{{1,3}}[ ]?[-—:：∶][ ]?(?!0[0-9])[0-9]{{1,3}})"
            rf"(?=(?:的比分)?[ ]?(?:{_WON}|的?(?:大|总)?比[分例]|的优势))"
        ),
        _score,
    ),
)
"""Before the times of day, which look the same."""

RULES: tuple[Rule, ...] = (
    (
        re.compile(rf"(?<![A-Za-z0-9./:]){_OPERAND}(?:{_FURTHER}++(?:[ ]?(?:{_RELATION}))?|[ ]?(?:{_RELATION}))"),
        _related,
    ),
    (
        re.compile(
            rf"(?<![A-Za-z0-9./:])[-−]?[(（]{{0,2}}{NUMBER}[)）]?"
            rf"(?:[ ]?(?:[+×÷*]|{_TIMES})[ ]?{_OPERAND}|[ ][-−][ ]{_OPERAND})++(?![A-Za-z/])"
        ),
        _expression,
    ),
    (re.compile(r"(?<![A-Za-z0-9./:])[0-9]{1,4}[nxyz][ ]?[-−+][ ]?[0-9]{1,6}(?![0-9A-Za-z])"), _expression),
    (
        re.compile(
            rf"(?P<lead>(?:算一?下|计算|算出|口算|得数|求|减法)[^0-9\n。！？；第]{{0,4}})"
            rf"{START}(?P<sum>{NUMBER}(?:[ ]?[-−+×xX*÷/][ ]?{NUMBER}){{1,8}})(?![0-9])"
        ),
        lambda match: match["lead"] + _sum(match["sum"]),
    ),
    (
        re.compile(
            rf"{START}(?P<base>{NUMBER}|(?<![A-Za-z])(?!(?<=/)m[²³])[a-z])(?:\^(?P<power>-?[0-9]{{1,3}})|(?P<raised>[⁰¹²³⁴-⁹]{{1,3}}))"
            rf"(?![A-Za-z0-9])"
        ),
        lambda match: (
            (amount(match["base"]) if match["base"][0].isdigit() else match["base"])
            + _power(match["power"] or match["raised"].translate(_SUPERSCRIPTS))
        ),
    ),
    (
        re.compile(
            rf"{START}(?<![:：])(?P<ratio>[0-9]{{1,6}}(?:\.[0-9]{{1,3}})?(?:[:：∶][0-9]{{1,8}}"
            rf"(?:\.[0-9]{{1,3}})?){{1,4}})(?![0-9:：])"
        ),
        _ratio,
    ),
    (
        re.compile(
            r"(?<![0-9./A-Za-z])(?P<ones>[0-9]{1,3} "
            r")?(?P<part>[0-9]{1,3})[/／⁄](?P<whole>[0-9]{1,4})(?![0-9./／]|\.[0-9])"
        ),
        _parts,
    ),
)
