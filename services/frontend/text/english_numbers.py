"""Digits as English words."""

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_GROUPS = (
    "", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion", " sextillion", " septillion",
    " octillion", " nonillion", " decillion",
)  # fmt: skip
MOST_DIGITS = 15
"""Longer runs of digits are read digit by digit."""


def digit_by_digit(digits: str) -> list[str]:
    """`"07"` as zero, seven."""
    return [_SMALL[int(digit)] for digit in digits]


def whole(digits: str) -> list[str]:
    """A run of digits as a number; digit by digit when it begins with a zero or is very long."""
    if len(digits) > MOST_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return digit_by_digit(digits)
    return _cardinal(int(digits))


def grouped(digits: str) -> str:
    """A number of at most 36 digits in written English, `"1234"` as "one thousand, two hundred and
    thirty-four" (compatibility specification section 2.1): commas between the groups of three
    digits, "and" in place of the last comma where the last group is below a hundred, and a hyphen
    between tens and ones.
    """
    numbers = [int(digits) // 1000**power % 1000 for power in range(len(_GROUPS))]
    words = [" ".join(_cardinal(number)).replace("ty ", "ty-") for number in numbers]
    parts = [word + name for number, word, name in zip(numbers, words, _GROUPS, strict=True) if number][::-1]
    last_is_short = len(parts) > 1 and 0 < numbers[0] < 100
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if last_is_short else ", ".join(parts) or _SMALL[0]


def ordinal(digits: str) -> list[str]:
    """`"21"` as twenty, first."""
    *words, last = whole(digits)
    return [*words, _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")]


def year(digits: str) -> list[str]:
    """Four digits as a year: nineteen, oh, five; plainly where that is not how people say it (two
    thousand and nine).
    """
    century, rest = int(digits[:2]), int(digits[2:])
    if century < 11 or (century == 20 and rest < 10) or century > 20:
        return whole(digits)
    if rest == 0:
        return [*_cardinal(century), "hundred"]
    return [*_cardinal(century), *(["oh"] if rest < 10 else []), *_cardinal(rest)]


def clock(hours: str, minutes: str) -> list[str]:
    """`"9", "05"` as nine, oh, five; the full hour as the hour alone."""
    if minutes == "00":
        return _cardinal(int(hours))
    return [*_cardinal(int(hours)), *(["oh"] if minutes[0] == "0" else []), *_cardinal(int(minutes))]


def amount(digits: str, cents: str, unit: str, part: str) -> list[str]:
    """Money: `"12", "50", "dollar", "cent"` as twelve, dollars, fifty, cents."""
    words = [*whole(digits), unit if digits == "1" else f"{unit}s"]
    if cents.strip("0"):
        words += [*_cardinal(int(cents)), part if int(cents) == 1 or part == "pence" else f"{part}s"]
    return words


def _cardinal(value: int) -> list[str]:
    if value < 20:
        return [_SMALL[value]]
    if value < 100:
        return [_TENS[value // 10], *([_SMALL[value % 10]] if value % 10 else [])]
    scale, name = next((scale, name) for scale, name in _SCALES if value >= scale)
    rest = value % scale
    return [*_cardinal(value // scale), name, *(["and"] if 0 < rest < 100 else []), *(_cardinal(rest) if rest else [])]
