"""Values as Chinese words. Fields as in `english`."""

from collections.abc import Callable

from services.frontend.text import chinese_numbers

_MONEY = {"USD": "美元", "EUR": "欧元", "GBP": "英镑", "CNY": "元", "JPY": "日元"}
_UNITS = {
    "mm": "毫米", "cm": "厘米", "m": "米", "km": "公里", "mg": "毫克", "g": "克", "kg": "千克", "t": "吨", "ml": "毫升",
    "l": "升", "in": "英寸", "ft": "英尺", "yd": "码", "mi": "英里", "oz": "盎司", "lb": "磅", "lbs": "磅",
    "gal": "加仑", "ms": "毫秒", "s": "秒", "sec": "秒", "min": "分钟", "h": "小时", "hr": "小时", "hz": "赫兹",
    "khz": "千赫", "mhz": "兆赫", "ghz": "吉赫", "w": "瓦", "kw": "千瓦", "kwh": "千瓦时", "v": "伏", "a": "安",
    "kb": "千字节", "mb": "兆字节", "gb": "吉字节", "tb": "太字节", "km/h": "公里每小时", "kph": "公里每小时",
    "mph": "英里每小时", "m/s": "米每秒", "°": "度", "°c": "摄氏度", "℃": "摄氏度", "°f": "华氏度", "℉": "华氏度",
    "m2": "平方米", "m²": "平方米", "km2": "平方公里", "km²": "平方公里", "m³": "立方米", "px": "像素",
}  # fmt: skip
_SIGNS = {
    "-": "杠", "_": "下划线", ".": "点", "/": "斜杠", "\\": "反斜杠", "@": "艾特", "#": "井号", "&": "和", "+": "加",
    "*": "星号", "%": "百分号", "=": "等号", ":": "冒号", "$": "美元符号", "!": "感叹号", "?": "问号", "~": "波浪线",
    ",": "逗号", ";": "分号",
}  # fmt: skip


def whole(number: str) -> str:
    """A run of digits as a number, without its leading zeros: 一千零二十三. It begins with 二 where
    nothing is counted: 二万零五百.
    """
    words = chinese_numbers.cardinal(number.lstrip("0") or "0")
    return "二" + words[1:] if words[0] == "两" else words


def _minus(sign: str) -> str:
    return "负" if sign in ("-", "\u2212") else ""


def _cardinal(sign: str, digits: str, decimals: str) -> str:
    return _minus(sign) + whole(digits) + ("点" + chinese_numbers.digits(decimals) if decimals else "")


def _ordinal(digits: str) -> str:
    return "第" + whole(digits)


def _telephone(plus: str, *groups: str) -> str:
    return ("加" if plus else "") + "，".join(chinese_numbers.called(group) for group in groups)


def _characters(written: str) -> str:
    words = [
        chinese_numbers.digits(c) if c.isascii() and c.isdigit() else _SIGNS.get(c, c.upper() if c.isascii() else c)
        for c in written
        if c.strip()
    ]
    return " ".join(words) if all(c.isascii() and c.isalpha() for c in words) else "".join(words)


def _date(year: str, month: str, day: str) -> str:
    return "".join(
        part
        for part in (
            chinese_numbers.digits(year) + "年" if year else "",
            whole(month) + "月" if month else "",
            whole(day) + "日" if day else "",
        )
    )


def _time(hours: str, minutes: str, seconds: str, half: str) -> str:
    words = {"a": "上午", "p": "下午", "": ""}[half] + ("两" if int(hours) == 2 else whole(hours)) + "点"
    if minutes.strip("0"):
        words += ("零" if minutes[0] == "0" else "") + whole(minutes) + "分"
    elif not seconds:
        words += "整" if not half else ""
    if seconds:
        words += "" if minutes.strip("0") else "零分"
        words += ("零" if seconds[0] == "0" and seconds.strip("0") else "") + whole(seconds) + "秒"
    return words


def _currency(sign: str, digits: str, decimals: str, code: str) -> str:
    decimals = decimals.rstrip("0")
    amount = "两" if digits.lstrip("0") == "2" and not decimals else _cardinal("", digits, decimals)
    return _minus(sign) + amount + _MONEY[code]


def _fraction(sign: str, digits: str, above: str, below: str) -> str:
    return _minus(sign) + (whole(digits) + "又" if digits else "") + f"{whole(below)}分之{whole(above)}"


def _unit(sign: str, digits: str, decimals: str, unit: str) -> str:
    if unit == "%":
        return _minus(sign) + "百分之" + _cardinal("", digits, decimals)
    amount = "两" if digits.lstrip("0") == "2" and not decimals and not sign else _cardinal(sign, digits, decimals)
    return amount + _UNITS[unit]


WORDS: dict[str, Callable[..., str]] = {
    "cardinal": _cardinal, "ordinal": _ordinal, "digits": chinese_numbers.digits, "telephone": _telephone,
    "characters": _characters, "date": _date, "time": _time, "currency": _currency, "fraction": _fraction,
    "unit": _unit,
}  # fmt: skip
"""Maps a kind to the function that puts its fields into words."""
