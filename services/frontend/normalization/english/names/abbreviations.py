"""Abbreviations with a full stop: their words by context, and whether their full stop ends the
sentence.
"""

import re

from services.frontend.segmentation.sentence_ends import OPENERS
from services.frontend.text.rules import Rule, any_of

_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Dr": "doctor", "Prof": "professor", "Capt": "captain",
    "Lt": "lieutenant", "Gen": "general", "Sen": "senator", "Rep": "representative", "Rev": "reverend",
    "Sgt": "sergeant", "Gov": "governor", "Col": "colonel", "Maj": "major", "Cpl": "corporal", "Cmdr": "commander",
    "Adm": "admiral", "Pres": "president", "Hon": "honorable", "Supt": "superintendent", "Fr": "father", "Sr": "sister",
    "Pvt": "private", "Atty": "attorney", "Messrs": "messieurs",
}  # fmt: skip
_STREETS = {
    "St": "Street", "Dr": "Drive", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane", "Ct": "Court",
    "Pl": "Place", "Pkwy": "Parkway", "Hwy": "Highway", "Sq": "Square", "Ter": "Terrace", "Cir": "Circle",
    "Expy": "Expressway", "Tpke": "Turnpike",
}  # fmt: skip
_PLACES = {"St": "Saint", "Mt": "Mount", "Ft": "Fort", "Pt": "Point", "Ste": "Saint"}
_STATES = {
    "Calif": "California", "Ariz": "Arizona", "Conn": "Connecticut", "Fla": "Florida", "Mich": "Michigan",
    "Minn": "Minnesota", "Tenn": "Tennessee", "Okla": "Oklahoma", "Colo": "Colorado", "Wis": "Wisconsin",
    "Wyo": "Wyoming", "Nebr": "Nebraska", "Tex": "Texas",
}  # fmt: skip
_STATES_OR_WORDS = {
    "Mass": "Massachusetts", "Wash": "Washington", "Miss": "Mississippi", "Ore": "Oregon", "Ill": "Illinois",
    "Ala": "Alabama", "Ark": "Arkansas", "Del": "Delaware", "Ga": "Georgia", "Ind": "Indiana", "Kan": "Kansas",
    "Ky": "Kentucky", "La": "Louisiana", "Md": "Maryland", "Mo": "Missouri", "Mont": "Montana", "Neb": "Nebraska",
    "Nev": "Nevada", "Pa": "Pennsylvania", "Va": "Virginia", "Vt": "Vermont",
}  # fmt: skip
"""States only behind a party, or between the commas behind a city."""
_COUNTED = {
    "No": "number", "Nos": "numbers", "Fig": "figure", "Figs": "figures", "Art": "article", "Arts": "articles",
    "Sec": "section", "Ch": "chapter", "Chap": "chapter", "Vol": "volume", "Vols": "volumes", "p": "page",
    "pp": "pages", "P": "page", "Pg": "page", "pg": "page", "Eq": "equation", "Eqs": "equations", "Ex": "example",
    "Tab": "table", "Apt": "apartment", "Bldg": "building", "Pt": "part", "Ver": "version", "ver": "version",
    "no": "number", "nos": "numbers", "fig": "figure", "figs": "figures", "art": "article", "sec": "section",
    "ch": "chapter", "chap": "chapter", "vol": "volume", "vols": "volumes", "eq": "equation", "apt": "apartment",
    "Para": "paragraph", "para": "paragraph", "Ser": "series", "App": "appendix", "Op": "opus", "op": "opus",
    "Ep": "episode", "ep": "episode", "Ste": "suite", "Rm": "room", "Fl": "floor", "Hwy": "highway", "Rte": "route",
    "Cl": "clause", "Reg": "regulation", "Prop": "proposition", "Def": "definition", "Thm": "theorem",
    "Cor": "corollary", "approx": "approximately", "ca": "circa", "c": "circa",
}  # fmt: skip
_ANYWHERE = {
    "vs": "versus", "etc": "et cetera", "approx": "approximately", "dept": "department", "Dept": "Department",
    "govt": "government", "est": "established", "Est": "Established", "Inc": "Incorporated", "Ltd": "Limited",
    "Corp": "Corporation", "Co": "Company", "Bros": "Brothers", "Jr": "Junior", "Sr": "Senior", "Univ": "University",
    "Assn": "Association", "Intl": "International", "Natl": "National", "misc": "miscellaneous", "max": "maximum",
    "min": "minimum", "avg": "average", "incl": "including", "excl": "excluding", "tel": "telephone",
    "Tel": "Telephone", "temp": "temperature", "qty": "quantity", "Qty": "Quantity", "mfg": "manufacturing",
    "mgmt": "management", "mgr": "manager", "Mgr": "Manager", "Asst": "Assistant", "asst": "assistant",
    "attn": "attention", "Attn": "Attention", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane",
    "Pkwy": "Parkway", "Hwy": "Highway", "Apt": "Apartment", "viz": "namely", "cont": "continued",
    "Approx": "Approximately", "encl": "enclosed", "ext": "extension", "Ext": "Extension", "hrs": "hours",
    "yrs": "years", "mins": "minutes", "secs": "seconds", "cf": "compare", "ibid": "ibidem", "Mt": "Mount", "Max": "",
    "Min": "",
}  # fmt: skip
_NOT_AT_THE_END = frozenset(("max", "min", "est", "temp", "misc", "ext", "cont", "viz", "cf", "tel", "Est"))
"""Words at the end of a sentence rather than abbreviations."""
_LATIN = {
    "e.g.": "for example",
    "i.e.": "that is",
    "E.g.": "For example",
    "I.e.": "That is",
    "a.k.a.": "also known as",
    "w.r.t.": "with respect to",
    "eg.": "for example",
    "ie.": "that is",
}
_NO_STREET = frozenset(
    [
        "Mount",
        "Port",
        "Lake",
        "Fort",
        "Cape",
        "Point",
        "East",
        "West",
        "North",
        "South",
        "Upper",
        "Lower",
        "Father",
        "Sister",
        "The",
        "In",
        "At",
        "On",
        "From",
        "To",
        "Of",
        "And",
        "Dr",
        "Mr",
        "Mrs",
        "Ms",
        "Bishop",
        "Saint",
        "Visit",
        "See",
        "Near",
        "Is",
        "Was",
    ]
)
_NEXT = re.compile(r"[ ]+[\"“‘'(\[]?(?P<word>[A-Za-z]+|[^ ])")


def _following(match: re.Match[str]) -> str:
    """The next word, or its first character; empty at the end."""
    after = _NEXT.match(match.string, match.end(), match.end() + 48)
    return after["word"] if after else ""


def _ends(following: str) -> bool:
    """Whether an abbreviation ends the sentence, by the next word."""
    return not following or (following[0].isupper() and following.lower() in OPENERS)


def _stop(match: re.Match[str]) -> str:
    mark_follows = match.string[match.end() : match.end() + 1] in (",", ";", ":", ")", "?", "!", ".")
    return "." if not mark_follows and _ends(_following(match)) else ""


def _previous_word(match: re.Match[str]) -> str:
    above = re.search(r"([A-Za-z0-9'’]+)[ ]$", match.string[max(0, match.start() - 24) : match.start()])
    return above[1] if above else ""


def _street_or_saint(match: re.Match[str]) -> str:
    key, following, above = match["key"], _following(match), _previous_word(match)
    named = (above[:1].isupper() and above not in _NO_STREET) or re.fullmatch(
        r"[0-9]{1,3}(?:st|nd|rd|th)|(?:first|second|third|[a-z]+th)", above
    ) is not None
    if following[:1].isupper() and not named:
        return {
            "St": "Saint",
            "Dr": "doctor",
            "Ct": "Court",
            "Pl": "Place",
            "Sq": "Square",
            "Ter": "Terrace",
            "Cir": "Circle",
        }[key]
    return _STREETS[key] + (_stop(match) or ("," if following[:1].isupper() and len(following) > 1 else ""))


def _anywhere(match: re.Match[str]) -> str:
    key = match["key"]
    words = _ANYWHERE[key]
    if not words or (key in _NOT_AT_THE_END and _ends(_following(match))):
        return match[0]
    return words + _stop(match)


def _initials(match: re.Match[str]) -> str:
    return match[0].replace(".", "") + _stop(match)


_CITY = re.compile(r"\b[A-Z][a-z]+, $")


def _state(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 24) : match.start()]
    if not match["party"] and before.endswith(", ") and not _CITY.search(before):
        return match[0]
    name = match["party"] or match["state"] or match["between"]
    return (_STATES.get(name) or _STATES_OR_WORDS[name]) + _stop(match)


def _latin(match: re.Match[str]) -> str:
    comma = "" if match.string[match.end() : match.end() + 1] in (",", ":") else ","
    words = _LATIN[match[0]]
    return words + (comma if words.lower() in ("for example", "that is") else "")


KEYS = frozenset((*_TITLES, *_STREETS, *_PLACES, *_COUNTED, *_ANYWHERE, *_STATES, *_STATES_OR_WORDS, "D", "eg", "ie"))
"""Words that an abbreviation's full stop may follow."""


def _number_or_no(match: re.Match[str]) -> str:
    answer = match["key"] == "no" and _SAYING.search(match.string[max(0, match.start() - 20) : match.start()])
    return match[0] if answer else f"{_COUNTED[match['key'].lower()]} "


_SAYING = re.compile(
    r"\b(?:say|says|said|saying|answers?|answered|reply|replies|replied|told "
    r"(?:me|him|her|us|them)|[Oo]h|[Aa]h|[Uu]m|[Uu]h|[Ww]ell|[Ss]adly|definitely|absolutely|of course|probably|"
    r"simply),? $"
)
COUNTED: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9.'’&-])(?P<key>[Nn]os?)\. ?(?=[0-9])"), _number_or_no),
    (
        re.compile(rf"(?<![A-Za-z0-9.'’&-])(?P<key>{any_of(set(_COUNTED) - {'no', 'nos'})})\.[ ]?(?=[0-9])"),
        lambda match: f"{_COUNTED[match['key']]} ",
    ),
)
RULES: tuple[Rule, ...] = (
    (re.compile(rf"(?<![A-Za-z0-9.])(?:{any_of(_LATIN)})(?=[ ,:])"), _latin),
    (
        re.compile(
            r"(?<![A-Za-z0-9.'’&-])(?P<key>Fig|Vol|Art|Sec|Ch|App|Pt|Op|Apt|Ste|Bldg|Rm|Appx)\.[ ]"
            r"(?=[A-Z0-9IVX]{1,4}(?![A-Za-z]))(?!I )"
        ),
        lambda match: f"{_COUNTED.get(match['key'], 'appendix')} ",
    ),
    (
        re.compile(r"(?<![A-Za-z0-9.'’&-])(?P<key>fig|vol|art|sec|ch|app|op)\.[ ](?=[IVX]{1,6}(?![A-Za-z'’]))"),
        lambda match: f"{_COUNTED.get(match['key'], 'appendix')} ",
    ),
    (
        re.compile(r"(?<![A-Za-z0-9.'’&-])(?P<key>Nos?)\.(?= of (?!course)[a-z])"),
        lambda match: _COUNTED[match["key"]].title(),
    ),
    (re.compile(r"(?<![A-Za-z0-9.'’&-])(?P<key>St|Dr|Ct|Pl|Sq|Ter|Cir)\.(?![A-Za-z0-9])"), _street_or_saint),
    (
        re.compile(
            rf"(?<![A-Za-z0-9.'’&-])(?P<key>{any_of(set(_TITLES) - {'Dr'})})\.(?=[ ]+(?:[A-Z]|doctor\b))(?![ ][XYZ]\b)"
        ),
        lambda match: (
            _TITLES[match["key"]] if match["key"] != "Sr" or not _previous_word(match)[:1].isupper() else match[0]
        ),
    ),
    (re.compile(r"(?<![A-Za-z0-9.'’&-])(?P<key>Mt|Ft|Pt|Ste)\.(?=[ ][A-Z])"), lambda match: _PLACES[match["key"]]),
    (re.compile(r"(?<![A-Za-z.'’])(?:[A-Z]\.){2,6}(?![A-Za-z])"), _initials),
    (re.compile(r"\bPh\.[ ]?D\.(?=(?P<rest>))"), lambda match: "PhD" + _stop(match)),
    (re.compile(rf"(?<![A-Za-z0-9.'’&-])(?P<key>{any_of(_ANYWHERE)})\.(?![A-Za-z0-9])"), _anywhere),
    (re.compile(r"(?<=\s)vs(?=\s)"), "versus"),
    (
        re.compile(
            rf"(?<=\b[DR]-)(?P<party>{any_of(_STATES | _STATES_OR_WORDS)})\.(?![A-Za-z0-9])|(?:(?<=[a-z], )|(?<=\bin )|"
            rf"(?<=\bfrom ))(?P<state>{any_of(_STATES)})\.(?![A-Za-z0-9])|(?<=[a-z], )"
            rf"(?P<between>{any_of(_STATES_OR_WORDS)})\.(?=,)"
        ),
        _state,
    ),
)
