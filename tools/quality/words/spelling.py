"""Two writings of the same words, made equal before they are compared.

What is folded is how a word is written, never which word it is: case, punctuation, figures,
contractions (as in the English normaliser of Radford et al. 2022, Robust Speech Recognition via
Large-Scale Weak Supervision, appendix C), British and American spelling, and a few abbreviations,
and the interjections that have no one spelling (hm, hmm; ugh, ugg). Words that merely sound alike
(their, there) stay different; letters and interjections have `same_sound`. Where a word is written
in two ("some one"), the alignment takes care of it.

Numbers in one form, however they were written: as the digits that a reader would type, one word
to a digit.

"nineteen oh five", "1905" and "19 05" are all 1 9 0 5; "six hundred and forty seven" and "647" are
6 4 7; "13th" and "thirteenth" are 1 3 th. So neither side of a comparison has to guess how the
other would read a figure.
"""

import re

_SIGNS = {"%": " percent ", "+": " plus ", "=": " equals ", "&": " and ", "°": " degrees ", "#": " number "}
_MONEY = re.compile(r"([$£€])\s?(\d[\d,]*)")
_CURRENCY = {"$": "dollars", "£": "pounds", "€": "euros"}
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_FULL_HOUR = re.compile(r"\b(\d{1,2}):00\b(?: o'?clock)?")
_UNIT_AFTER_FIGURE = re.compile(r"(?<=\d)(?=(?:am|pm|[a-z])\b)")
"""A letter behind a figure is a word, too: seat 12B."""
_LETTER_BEFORE_FIGURE = re.compile(r"\b([a-z])(?=\d)")
_PRONOUN = re.compile(r"\b(any|every|some) one\b")
"""Joined before "one" is taken for a figure."""
_MURMUR = re.compile(r"\bm+-?hm+\b")
"""Mm-hmm, also written mhm."""
_A_HUNDRED = re.compile(r"\ba (?=(?:hundred|thousand|million)\b)")
_DAY_OF_MONTH = re.compile(
    r"\b(january|february|march|april|may|june|july|august|september|october|november|december)((?: \d){1,2}) th\b"
)
"""Read "April fifth", written "April 5" as often as "April 5th"."""
_NOT_A_WORD = re.compile(r"[^a-z0-9' ]")
_CONTRACTIONS = (
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\b(?:can't|cannot)\b"), "can not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\blet's\b"), "let us"),
    (re.compile(r"\b(he|she|it|that|this|there|here|what|who|where|how|when)'s\b"), r"\1 is"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'m\b"), " am"),
    (re.compile(r"'d\b"), " would"),
)
_BRITISH = """
behaviour behavior, centre center, centres centers, cheque check, colour color, colours colors,
coloured colored, defence defense, favour favor, favourite favorite, grey gray, harbour harbor,
honour honor, honourable honorable, humour humor, jewellery jewelry, labour labor, licence license,
litre liter, litres liters, metre meter, metres meters, moustache mustache, moustaches mustaches,
kilometre kilometer, kilometres kilometers, neighbour neighbor, neighbours neighbors, neighbourhood
neighborhood, organise organize, parlour parlor, programme program, programmes programs, realise
realize, realised realized, recognise recognize, recognised recognized, rumour rumor, theatre
theater, travelled traveled, traveller traveler, travelling traveling, tyre tire, tyres tires
"""
_SAME = dict(pair.split() for pair in _BRITISH.replace("\n", " ").split(",")) | {
    "okay": "ok",
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "alright": "allright",
}
_INTERJECTIONS = """
ugh ug ugg uggh, ah aah ahh, oh ohh, ooh oooh, hm hmm hmmm hmmmm, mm mmm mmmm, aw aww awww, whoa woah, shh shhh, ow oww
"""
_SAME |= {
    other: first
    for first, *others in (line.split() for line in _INTERJECTIONS.replace("\n", " ").split(","))
    for other in others
}
_DIGITS = {
    word: digit
    for digit, word in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
}
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_SMALL = _DIGITS | {word: 10 + place for place, word in enumerate(_TEENS)}
_TENS = {
    word: 10 * place
    for place, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
}
_SCALES = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_IRREGULAR_ORDINALS = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
}
_WRITTEN = re.compile(r"(\d+)(st|nd|rd|th)?")


def words_of(text: str) -> list[str]:
    """The words of a text in the one form in which they are compared; a digit is a word."""
    text = text.lower().replace("’", "'").replace("‘", "'")
    text = _MONEY.sub(lambda match: f"{match[2]} {_CURRENCY[match[1]]}", text)
    text = _THOUSANDS.sub("", text)
    text = _FULL_HOUR.sub(r"\1 o'clock", text)
    text = _UNIT_AFTER_FIGURE.sub(" ", text)
    text = _LETTER_BEFORE_FIGURE.sub(r"\1 ", text)
    text = _PRONOUN.sub(r"\1one", text)
    text = _MURMUR.sub("mm hm", text)
    text = _A_HUNDRED.sub("one ", text)
    for sign, word in _SIGNS.items():
        text = text.replace(sign, word)
    for pattern, written_out in _CONTRACTIONS:
        text = pattern.sub(written_out, text)
    words = [word.strip("'") for word in _NOT_A_WORD.sub(" ", text).split()]
    one_form = " ".join(_SAME.get(word, word) for word in _digits_of([word for word in words if word]))
    return _DAY_OF_MONTH.sub(r"\1\2", one_form).split()


def _cardinal(word: str) -> str | None:
    """The cardinal of an ordinal: "twentieth" is "twenty"; None when the word is no ordinal."""
    if word in _IRREGULAR_ORDINALS:
        return _IRREGULAR_ORDINALS[word]
    for ending, cardinal_ending in (("ieth", "y"), ("th", "")):
        stem = word.removesuffix(ending) + cardinal_ending
        if word.endswith(ending) and (stem in _SMALL or stem in _TENS or stem in _SCALES or stem == "hundred"):
            return stem
    return None


class _Reader:
    """Number words as they come; `digits` is what they amount to so far."""

    def __init__(self) -> None:
        self.digits = ""
        self._total = 0
        """Whole thousands and more."""
        self._below: int | None = None
        """The group being read, below 1000; None before its first word."""
        self._step = 0
        """What the next word may add to the group without beginning a new number: 10 after a ten,
        100 after a hundred.
        """

    def read(self, word: str) -> bool:
        """Take a word; False when it cannot belong to a number."""
        if word in _SMALL or word in _TENS:
            self._add(_SMALL.get(word, 0) or _TENS.get(word, 0), ten=word in _TENS)
        elif word == "hundred" and self._below is not None and 0 < self._below < 100:
            self._below, self._step = self._below * 100, 100
        elif word in _SCALES and self._below:
            self._total, self._below, self._step = self._total + self._below * _SCALES[word], 0, 1000
        else:
            return False
        return True

    def _add(self, value: int, *, ten: bool) -> None:
        if self._below is None or value >= self._step or value == 0:
            self.end()
            self._below = value
        else:
            self._below += value
        self._step = 10 if ten else 0

    @property
    def after_scale(self) -> bool:
        """Whether an "and" may stand here inside the number."""
        return self._step >= 100

    @property
    def begun(self) -> bool:
        return self._below is not None or bool(self.digits)

    def end(self) -> None:
        """The next word begins a new number."""
        if self._below is not None:
            self.digits += str(self._total + self._below)
        self._total, self._below, self._step = 0, None, 0


def _digits_of(words: list[str]) -> list[str]:
    """Lower-case words with every number among them written digit by digit, an ordinal with "th"
    after it.
    """
    out: list[str] = []
    place = 0
    while place < len(words):
        read, taken = _number(words, place)
        if taken:
            out += read
            place += taken
        else:
            out.append(words[place])
            place += 1
    return out


def _number(words: list[str], place: int) -> tuple[list[str], int]:
    """The digits of the number that begins at `place`, and how many words it has."""
    if written := _WRITTEN.fullmatch(words[place]):
        return [*written[1], *(["th"] if written[2] else [])], 1
    reader, begin, ordinal = _Reader(), place, False
    while place < len(words) and not ordinal:
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else ""
        if word in ("oh", "o") and reader.begun and _is_number(following):
            word = "zero"
        if word == "and" and reader.after_scale and _is_number(following):
            place += 1
            continue
        cardinal = _cardinal(word)
        if not reader.read(cardinal or word):
            break
        ordinal = cardinal is not None
        place += 1
    reader.end()
    return [*reader.digits, *(["th"] if ordinal else [])], place - begin


def _is_number(word: str) -> bool:
    return word in _SMALL or word in _TENS or _cardinal(word) in _SMALL or _cardinal(word) in _TENS
