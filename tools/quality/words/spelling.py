"""Two writings of the same words, made equal before they are compared.

What is folded is how a word is written, never which word it is: case, punctuation, figures,
contractions (as in the English normaliser of Radford et al. 2022, Robust Speech Recognition via
Large-Scale Weak Supervision, appendix C), British and American spelling, and a few abbreviations,
and the interjections that have no one spelling (hm, hmm; ugh, ugg). Words that merely sound alike
(their, there) stay different; letters and interjections have `same_sound`. Where a word is written
in two ("some one"), the alignment takes care of it.
"""

import re

from tools.quality.words.spelling import digits_of

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
    one_form = " ".join(_SAME.get(word, word) for word in digits_of([word for word in words if word]))
    return _DAY_OF_MONTH.sub(r"\1\2", one_form).split()
