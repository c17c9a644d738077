"""Figures as English words: amounts, years, digits, and the short form of rooms and flights."""

from services.frontend.text import english_numbers as numbers

GROUPED = r"[0-9]{1,3}(?:,[0-9]{3}){1,6}(?![0-9])"
"""A whole number with commas."""
_SIXES = {"six": "sixes", "zero": "zeros"}


def cardinal(digits: str) -> str:
    """`"1,250"` as one thousand two hundred and fifty; digit by digit with a leading zero, and
    beyond 15 digits.
    """
    return " ".join(numbers.whole(digits.replace(",", "")))


def amount(written: str) -> str:
    """A whole number, or a decimal fraction: `"3.05"` as three point zero five, `".5"` as point
    five.
    """
    whole, point, decimals = written.partition(".")
    if not point:
        return cardinal(whole)
    spoken = f"point {digits(decimals)}"
    return f"{cardinal(whole)} {spoken}" if whole else spoken


def digits(written: str) -> str:
    """Digit by digit; other characters are skipped."""
    return " ".join(numbers.digit_by_digit("".join(character for character in written if character in "0123456789")))


def with_oh(written: str) -> str:
    """Digit by digit, zeros as oh: `"007"`."""
    return digits(written).replace("zero", "oh")


def ordinal(written: str) -> str:
    """`"101"` as one hundred first."""
    return " ".join(numbers.ordinal(written.replace(",", ""))).replace(" and ", " ")


def year(written: str) -> str:
    """`"1905"` as nineteen oh five, `"2009"` as two thousand nine, `"476"` as an amount."""
    if len(written) != 4:
        return cardinal(written)
    if written[:2] == "20" and written[2] == "0":
        return cardinal(written).replace(" and ", " ")
    return " ".join(numbers.year(written))


def pair(written: str) -> str:
    """Two digits: `"05"` as oh five, `"42"` as forty two."""
    return f"oh {cardinal(written[1])}" if written[0] == "0" else cardinal(written)


def short(written: str) -> str:
    """The number of a room, port, house, flight or model: `"304"` as three oh four, `"8080"` as
    eighty eighty, `"1600"` as sixteen hundred, five digits and more one by one."""
    if written[0] == "0" or len(written) > 4:
        return digits(written)
    if len(written) < 3 or written.endswith("000"):
        return cardinal(written)
    head, tail = written[:-2], written[-2:]
    return f"{cardinal(head)} {'hundred' if tail == '00' else pair(tail)}"


def plural(words: str) -> str:
    """The last word in the plural: `"seven forty seven"` as seven forty sevens."""
    head, blank, last = words.rpartition(" ")
    last = _SIXES.get(last) or (f"{last[:-1]}ies" if last.endswith("y") else f"{last}s")
    return head + blank + last
