"""Figures as English words: amounts, years, digits, the short form of rooms and flights, fractions
and mixed numbers; how groups of figures are written; and Roman numerals: chapters and wars as
amounts, kings and popes as ordinals.
"""

import re

from services.frontend.text import english_numbers as numbers
from services.frontend.text.rules import Rule

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


_SIGNS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅐": "1/7", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
FRACTION_SIGNS = "".join(_SIGNS)
NUMBER = rf"(?:(?:{GROUPED}|[0-9]{{1,15}})(?:\.[0-9]{{1,20}})?|\.[0-9]{{1,20}})"
_PROPER = r"[0-9]{1,3}[/⁄][0-9]{1,3}"
QUANTITY = rf"(?:[0-9]{{1,4}}[ -]{_PROPER}|{_PROPER}|(?:[0-9]{{1,4}} ?)?[{FRACTION_SIGNS}]|{NUMBER})"
"""The caller checks the context."""
ALONE = r"(?<![\w.,/^$£€¥₹-])"
"""Before a quantity: it is not part of something longer."""
_MIXED = re.compile(
    rf"(?:(?P<whole>[0-9]{{1,4}})[ -]?)?(?:(?P<above>[0-9]{{1,3}})[/⁄](?P<below>[0-9]{{1,3}})|"
    rf"(?P<sign>[{FRACTION_SIGNS}]))"
)
_DENOMINATORS = {2: "half", 4: "quarter"}


def spoken_quantity(quantity: str) -> str:
    """`"5 1/2"` as five and a half, `"⅔"` as two thirds, `"1,250.5"` as one thousand two hundred
    and fifty point five.
    """
    mixed = _MIXED.fullmatch(quantity.strip())
    if mixed is None:
        return amount(quantity.strip())
    above, below = (_SIGNS[mixed["sign"]] if mixed["sign"] else f"{mixed['above']}/{mixed['below']}").split("/")
    if not mixed["whole"]:
        return fraction(above, below)
    part = fraction(above, below)
    return f"{cardinal(mixed['whole'])} and {'a' + part[3:] if part.startswith('one ') else part}"


def fraction(above: str, below: str) -> str:
    """`"3", "4"` as three quarters; `"17", "23"` as seventeen over twenty three; also "over" for a
    zero denominator.
    """
    value = int(below)
    if value < 2 or (value > 20 and value not in (32, 64, 100)):
        return f"{cardinal(above)} over {cardinal(below)}"
    name = _DENOMINATORS.get(value) or ordinal(below).replace(" ", "-")
    if above.strip("0") != "1":
        name = "halves" if value == 2 else f"{name}s"
    return f"{cardinal(above)} {name}"


def is_singular(quantity: str) -> bool:
    """Whether a unit after it is in the singular: one, and fractions of one."""
    bare = quantity.strip()
    mixed = _MIXED.fullmatch(bare)
    return bare == "1" or (
        mixed is not None and not mixed["whole"] and (bool(mixed["sign"]) or int(mixed["above"]) < int(mixed["below"]))
    )


_NARROW = "\u00a0\u2009\u202f\u2007"
_NOT_BEHIND = r"(?<![\w.,/-])"


def _with_commas(match: re.Match[str]) -> str:
    return re.sub(rf"[ {_NARROW}]", ",", match[0])


def _american(match: re.Match[str]) -> str:
    whole, _, cents = match[0].partition(",")
    return f"{whole.replace('.', ',')}.{cents}"


GROUPING: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![\w.,])[0-9]{1,3}(?:\.[0-9]{3}){0,4},[0-9]{2}(?=[ ]?€)|(?<=€)[0-9]{1,3}(?:\.[0-9]{3}){0,4},[0-9]{2}"
            r"(?![0-9.,])"
        ),
        _american,
    ),
    (re.compile(r"(?<=[0-9%°])[ ]?[–‒−—](?=[$£€¥₹]?[0-9])|(?<=[0-9%] )[–‒—](?= [0-9])"), "-"),
    (re.compile(r"(?<=[0-9][kKmMbB])[ ]?[–‒−—](?=[$£€¥₹]?[0-9])"), "-"),
    (re.compile(r"(?<![\w)])−(?=[0-9.$£€])"), "-"),
    # Non-breaking blanks are written between groups and hardly anywhere else.
    (re.compile(rf"{_NOT_BEHIND}[0-9]{{1,3}}(?:[{_NARROW}][0-9]{{3}}){{1,5}}(?![0-9]|[{_NARROW}][0-9])"), _with_commas),
    (re.compile(rf"{_NOT_BEHIND}[1-9][0-9]?(?:[ ][0-9]{{3}}){{2,5}}(?![0-9-]|[ ][0-9])"), _with_commas),
    (re.compile(rf"{_NOT_BEHIND}[1-9][0-9]{{0,2}}(?:[ ][0-9]{{3}}){{0,4}}[ ]000(?![0-9-]|[ ][0-9])"), _with_commas),
    # A single blank may also separate two numbers: an amount of something follows.
    (
        re.compile(
            r"(?<=[a-z] )[1-9][0-9]{0,2} [0-9]{3}(?= "
            r"(?:[a-z]{3}|(?:k?m|[kcm]?g|km²|m²|m³|l|L|ft|lb|[kM]Wh?|€)(?![A-Za-z0-9])))"
        ),
        _with_commas,
    ),
)

_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_ROMAN = r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?<=[IVXLCDM])"
"""Not empty, which the last look sees to."""
PARTS = (
    "Chapter|Part|Book|Volume|Vol\\.|Act|Scene|Section|Article|Appendix|Phase|Stage|Class|Level|Grade|Title|Bowl|"
    "Episode|Schedule|Tier|Category|Division|Figure|Table|Canto|Lesson|Unit|Module|Exhibit|Annex|Amendment|Group|Round|"
    "Area|War|Quadrant|Series|Olympiad|Mark|Factor|Test|Exam|Calculus|Algebra|Physics|Chemistry|Biology|English|"
    "Spanish|French|Latin|Type|Theorem|Rule|Psalm|Symphony|Sonata|Rocky|Fantasy|Formula"
)
_LOWER = (
    "type|phase|stage|chapter|part|act|scene|book|volume|class|level|grade|article|section|factor|schedule|tier|"
    "category|group"
)
RULERS = (
    "Henry|Louis|Elizabeth|Charles|George|William|Edward|Richard|James|John|Paul|Pius|Benedict|Francis|Philip|"
    "Ferdinand|Frederick|Catherine|Nicholas|Alexander|Peter|Ivan|Napoleon|Leo|Gregory|Innocent|Urban|Clement|Mary|"
    "Robert|David|Alfonso|Carlos|Juan|Felipe|Gustav|Gustaf|Christian|Olaf|Olav|Haakon|Harald|Margrethe|Ramesses|Ramses|"
    "Thutmose|Amenhotep|Ptolemy|Cleopatra|Darius|Xerxes|Cyrus|Artaxerxes|Otto|Wilhelm|Franz|Joseph|Leopold|Albert|"
    "Baudouin|Umberto|Emmanuel|Mehmed|Murad|Selim|Suleiman|Constantine|Theodosius|Justinian|Sixtus|Boniface|Celestine|"
    "Adrian|Stephen|Casimir|Sigismund|Edgar|Edmund|Malcolm|Hussein|Abdullah|Mohammed|Muhammad|Hassan|Rama|Kamehameha|"
    "Pedro|Afonso|Manuel|Isabella|Anne|Julius|Callixtus|Calixtus|Nero|Tiberius|Antiochus|Mithridates|Seleucus|"
    "Maximilian|Rudolf|Ludwig|Karl|Edwin|Harold|Victoria|Wilhelmina|Beatrix|Abdul|Alexios|Michael|Basil|Leon|Sancho|"
    "Thomas|Samuel|Walter|Arthur|Prince|King|Queen|Pope|Pharaoh"
)
_TITLED = re.compile(
    r"\b(?:King|Queen|Pope|Tsar|Czar|Emperor|Empress|Kaiser|Pharaoh|Saint|Sultan|Prince|Duke|Charles|Elizabeth)[ ]"
    r"(?:[A-Z][a-z]+ )?$"
)


_REIGNED = re.compile(r"[ ](?:ruled|reigned|died|became|of|was|and (?:his|her|the))\b|['’]s\b|[,;)]|[.](?:$|[ ])")
_SMALL = r"(?P<numeral>i{2,3}|iv|vi{0,3}|ix|xi{0,3})"


def roman_value(numeral: str) -> int:
    """The value of a well-formed Roman numeral."""
    numeral = numeral.upper()
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(-own if own < following else own for own, following in zip(values, [*values[1:], 0], strict=True))


def _roman_amount(match: re.Match[str]) -> str:
    return f"{match['name']} {cardinal(str(roman_value(match['numeral'])))}"


def _roman_ordinal(match: re.Match[str]) -> str:
    numeral = match["numeral"]
    if (
        numeral == "I"
        and not _REIGNED.match(match.string, match.end())
        and not _TITLED.search(match.string[max(0, match.start() - 20) : match.start("numeral")])
    ):
        return match[0]
    return f"{match['name']} the {ordinal(str(roman_value(numeral)))}"


def _listed(match: re.Match[str]) -> str:
    """Numerals side by side: `I, II and III`. Letters that happen to be numerals (`V, X and C`)
    stay; an I behind another one is the pronoun (`after World War II, I left`).
    """
    listed = re.findall("[IVX]+", match["list"])
    if max(map(len, listed)) < 2 or not all(_WELL_FORMED.fullmatch(numeral) for numeral in listed):
        return match[0]
    return re.sub("[IVX]+", lambda numeral: cardinal(str(roman_value(numeral[0]))), match[0].replace("-", " to "))


_WELL_FORMED = re.compile(_ROMAN)
_PRONOUN = r"(?!I (?:[a-z]|['’]))(?!I['’])"
ROMAN: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![A-Za-z0-9'’-])(?P<list>[IVX]{1,6}"
            r"(?:(?:,? (?:and|or|to) |, |-)(?!I\b)[IVX]{1,6}(?![A-Za-z0-9'’])){1,12})(?![A-Za-z0-9'’-])"
        ),
        _listed,
    ),
    (
        # Behind a blank, an I may be the pronoun.
        re.compile(
            r"\bWW(?:-| (?!I\b)| (?=I (?:and|or|to|era|veterans?|memorials?|ended|history)\b))?"
            r"(?P<numeral>I{1,3}|[123])(?![A-Za-z0-9])"
        ),
        lambda match: (
            f"World War {cardinal(match['numeral'] if match['numeral'].isdigit() else str(len(match['numeral'])))}"
        ),
    ),
    (re.compile(r"\b(?P<name>World War) (?P<numeral>II?)(?![A-Za-z]|['’]m)"), _roman_amount),
    (
        re.compile(rf"\b(?P<name>{PARTS}) {_PRONOUN}(?![CDLM]\b)(?P<numeral>{_ROMAN})\b(?!['’]|\.[A-Za-z])"),
        _roman_amount,
    ),
    (
        re.compile(rf"\b(?P<name>[Ss]cene|[Pp]art|[Ss]ection|[Pp]age|[Aa]ct|[Bb]ook|[Ii]tem) {_SMALL}(?![A-Za-z'’])"),
        _roman_amount,
    ),
    (
        re.compile(
            r"\b(?P<name>[Tt]ype) (?P<numeral>I)(?= "
            r"(?:error|diabetes|collagen|fracture|supernova|interferon|reaction|survey|and)\b)"
        ),
        _roman_amount,
    ),
    (re.compile(rf"\b(?P<name>{_LOWER}) (?!I\b|[CDLM]\b)(?P<numeral>{_ROMAN})\b(?!['’])"), _roman_amount),
    (
        re.compile(
            rf"\b(?!Malcolm X\b)(?P<name>{RULERS}) "
            rf"(?P<numeral>(?=[IVX])(?:X{{0,3}}(?:IX|IV|V?I{{0,3}})))(?![A-Za-z]|\.[A-Za-z])"
        ),
        _roman_ordinal,
    ),
    (
        re.compile(
            r"(?<=[a-z] )(?P<numeral>X{0,2}(?:VI{2,3}|I{2,3}|IX|XI{1,3}|XI?V|XVI{0,3}|XI?X)|XX[IV]+)"
            r"(?![A-Za-z]|['’]|\.[A-Za-z])"
        ),
        lambda match: cardinal(str(roman_value(match["numeral"]))),
    ),
)
