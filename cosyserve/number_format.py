"""The format of numbers in the output of commands: plain decimals, no exponent, no digits that
binary fractions add.
"""

from typing import Any

_DECIMALS = 6


def number(value: float) -> str:
    """For people: a whole number without a point, others with three decimals at most, those below a
    thousandth with six.
    """
    decimals = 3 if abs(value) >= 0.001 else _DECIMALS
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plain(value: Any) -> Any:
    """For JSON: each float inside `value` rounded to a millionth, a whole number of them as an
    integer.
    """
    if isinstance(value, float):
        rounded = round(value, _DECIMALS)
        return int(rounded) if rounded.is_integer() and abs(rounded) >= 1e6 else rounded
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
