"""Identifiers, read digit by digit or in pairs: accounts, codes, flights, rooms, ports, houses,
roads.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.text.rules import Rule, any_of

_STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii", "ID": "Idaho",
    "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana", "ME": "Maine",
    "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota", "MS": "Mississippi", "MO": "Missouri",
    "MT": "Montana", "NE": "Nebraska", "NV": "Nevada", "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico",
    "NY": "New York", "NC": "North Carolina", "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon",
    "PA": "Pennsylvania", "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee",
    "TX": "Texas", "UT": "Utah", "VT": "Vermont", "VA": "Virginia", "WA": "Washington", "WV": "West Virginia",
    "WI": "Wisconsin", "WY": "Wyoming", "DC": "DC",
}  # fmt: skip
_AMBIGUOUS_STATES = {"OK", "IN", "ME", "OR", "HI", "PA", "MA", "LA", "AL", "DE", "ID", "CO", "MD", "DC", "MS", "MT"}
"""Abbreviations that mean states only before a ZIP code."""
_STRONG = (
    "accounts?|acct|PIN|pin code|passcode|password|OTP|ISBN(?:-1[03])?|ISSN|SSN|IBAN|VIN|IMEI|UPC|SKU|EIN|serial|card "
    "number|zip(?: code)?|ZIP(?: code)?|postal|"
    "postcode|area code|tracking|confirmation|passport|routing|verification|security code|social security|booking|"
    "reservation|member(?:ship)?|"
    "employee|student|customer|patient|licen[cs]e plate|license|locker|combination|access code|country code|extension|"
    "badge|ticket number|case number|"
    r"[Oo]rder number|[Ii]nvoice number|policy|reference|ID|login code|dial code|PO Box|P\.O\. Box|P O Box"
)
_FILLER = (
    r"(?:[ ]?[:#]|[ ](?:is|was|are|ends|ending|ended|in|with|number|numbers|no\.?|code|id|ID|now|as|of|the|to|your|my|"
    r"his|her|our|box|starts|starting)\b){0,5}"
)
_MIXED_CODE = r"(?=[A-Z0-9-]{0,24}[0-9])[A-Z0-9]{2,16}(?:-[A-Z0-9]{1,8}){0,4}"
_CODE = r"(?:[A-Z]{1,4}[- ]?)?(?=[0-9]{2}|[0-9][- ][0-9])[0-9]{1,20}(?:[- ][0-9A-Z]{1,8}){0,6}"
_MIXED = re.compile(r"[A-Za-z]+|[0-9]+")
_ROOM = (
    r"[Rr]ooms?|[Ss]uites?|[Aa]pt\.?|[Aa]partments?|[Ff]lat|[Pp]orts?|[Gg]ates?|[Ff]light|[Hh]wy\.?|[Hh]ighway|"
    r"[Rr]oute|[Rr]te\.?|[Ii]nterstate|[Bb]us|[Ll]ocker|[Uu]nit|[Cc]abin|[Bb]oeing|[Aa]irbus|[Tt]rain|[Aa]rea|[Ee]rror|"
    r"[Ss]tatus|[Ee]xit|[Ss]te\.?|[Bb]ldg\.?|[Bb]uilding|[Cc]hannel|[Rr]m\.?|HTTP|[Ss]eat|[Bb]in|[Cc]ubicle|[Ww]ard|"
    r"[Ss]tall|[Ss]tudio|[Hh]ouse|[Ll]ot|[Pp]eugeot|Porsche|Ferrari|[Cc]ourse|RFC|RTX|GTX|RX|Radeon|GeForce|Quadro|"
    r"Ryzen(?: [3579])?|Threadripper|Xeon|Snapdragon|Exynos|Dimensity|ThinkPad"
)
_SEVERAL = (
    r"[Rr]ooms|[Pp]orts|[Ss]uites|[Aa]partments|[Ff]lats|[Gg]ates|[Hh]ighways|[Rr]outes|[Bb]uses|[Ll]ockers|"
    r"[Cc]hannels|[Ee]xits|[Ss]eats"
)
_ROOM_NAMES = {
    "apt": "apartment", "hwy": "highway", "rte": "route", "ste": "suite", "bldg": "building", "rm": "room",
}  # fmt: skip
_STREET = (
    r"(?:St|Ave|Rd|Blvd|Dr|Ln|Ct|Pl|Pkwy|Hwy|Sq|Ter|Cir)\b\.?|Street|Avenue|Road|Boulevard|Drive|Lane|Court|Place|"
    r"Parkway|Highway|Way|Square|Terrace|Circle|Broadway|Crescent|Alley|Trail|Row|Plaza|Pike"
)
_POINTS = {
    "N": "North", "S": "South", "E": "East", "W": "West", "NW": "Northwest", "NE": "Northeast", "SW": "Southwest",
    "SE": "Southeast",
}  # fmt: skip
_OF_A_YEAR = "(?:Pre|Post|Mid|Late|Early|Since|Until)"
"""Words with which a hyphen joins a year, which is no code (`Post-2008 rules`)."""
_NOT_COUNTED = r"(?![\w%/-]|[.,][0-9])"
_AIRLINES = (
    "AA|AC|AF|AI|AS|AY|AZ|BA|CA|CX|DL|EI|EK|EY|FR|IB|JL|KE|KL|LH|LX|LY|MH|MU|NH|NZ|OS|QF|QR|SK|SQ|SU|TG|TK|UA|UX|VS|WN|"
    "WS"
)


def spelled(code: str) -> str:
    """Letters and figures one by one: `"X7K29"` as X seven K two nine."""
    return " ".join(
        numerals.digits(part) if part[0].isdigit() else " ".join(part.upper()) for part in _MIXED.findall(code)
    )


def _code(match: re.Match[str]) -> str:
    return match["lead"].replace("PIN", "pin").replace("ZIP", "zip") + spelled(match["code"])


def _room(match: re.Match[str]) -> str:
    name = match["name"]
    full = _ROOM_NAMES.get(name.rstrip(".").lower())
    name = name if full is None else full.capitalize() if name[0].isupper() else full
    letters = f"{' '.join(match['before'])} " if match["before"] else ""
    after = f" {match['letter'].upper()}" if match["letter"] else ""
    return f"{name} {match['counted'] or ''}{letters}{numerals.short(match['number'])}{after}"


def _rooms(match: re.Match[str]) -> str:
    return match["name"] + re.sub("[0-9]+", lambda number: numerals.short(number[0]), match["numbers"])


def _dashed(match: re.Match[str]) -> str:
    """`A-1027`, `CVE-2021-44228`; one or two figures stay for other rules (`COVID-19`, `Q-3`)."""
    letters, *numbers = match["code"].split("-")
    if not match["sign"] and all(len(number) < 3 for number in numbers):
        return match[0]
    return f"{'number ' if match['sign'] else ''}{letters} {' '.join(map(numerals.short, numbers))}"


def _zip_code(match: re.Match[str]) -> str:
    more = f", {numerals.digits(match['more'])}" if match["more"] else ""
    return f"{_STATES[match['state']]}{match['gap']}{numerals.digits(match['zip'])}{more}"


def _grouped(match: re.Match[str]) -> str:
    return ", ".join(numerals.digits(group) for group in re.split("[ -]", match["code"]))


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            rf"\b(?P<state>{any_of(_STATES)})(?P<gap>,?[ ])(?P<zip>[0-9]{{5}})(?:-(?P<more>[0-9]{{4}}))?"
            rf"(?![0-9]|[.,][0-9])"
        ),
        _zip_code,
    ),
    (
        re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?P<sign>[:-])(?:[0-9A-Fa-f]{2}(?P=sign)){4}[0-9A-Fa-f]{2}(?![\w:-])"),
        lambda match: ", ".join(spelled(pair) for pair in re.split("[:-]", match[0])),
    ),
    (re.compile(r"(?<![\w-])(?P<code>[0-9]{3}-[0-9]{2}-[0-9]{4})(?![\w-])"), _grouped),
    (re.compile(r"(?<![\w-])(?P<code>97[89]-[0-9]{1,5}-[0-9]{1,7}-[0-9]{1,7}-[0-9])(?![\w-])"), _grouped),
    (re.compile(r"(?<![\w-])(?P<code>[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4})(?![\w-])"), _grouped),
    (
        re.compile(
            rf"(?P<lead>\b(?:{_STRONG})\b{_FILLER}[ ]?)(?P<code>(?:{_CODE}|{_MIXED_CODE})(?![0-9A-Za-z%]|[.,][0-9]))"
        ),
        _code,
    ),
    (
        re.compile(
            rf"(?P<lead>\b(?:[Cc]ode|[Ee]nding in|[Ee]nds in)\b{_FILLER}[ ])"
            r"(?P<code>(?=[0-9 ]{6,15})[0-9]{2,4}(?: [0-9]{2,4}){1,3})"
            r"(?![\w%]|[.,][0-9])"
        ),
        lambda match: match["lead"] + _grouped(match),
    ),
    (
        re.compile(
            r"(?P<lead>\b(?:[Cc]ode|[Ee]nding in|[Ee]nds in|[Ss]erial number|[Ss]erial|[Mm]odel number|[Pp]romo code|"
            r"[Vv]oucher|[Cc]oupon|[Pp]late|[Rr]egistration|[Cc]onfirmation)\b"
            rf"{_FILLER}[ ])(?P<code>{_MIXED_CODE})(?![\w%]|[.,][0-9])"
        ),
        lambda match: match["lead"] + _short_code(match["code"]),
    ),
    (
        re.compile(
            r"(?P<lead>\b(?:[Oo]rder|[Cc]ase|[Tt]icket|[Ii]nvoice|[Cc]laim|[Rr]ef|[Ff]lyer|[Rr]eceipt|[Rr]equest|"
            r"[Pp]arcel|[Bb]atch|[Ii]tem|[Pp]art)(?:[ ](?:no\.?|number|is))?[ ]?)#?(?P<code>[0-9]{5,20}|0[0-9]{1,20})"
            "(?![0-9%]|[.,][0-9])"
        ),
        _code,
    ),
    (
        re.compile(r"(?<![\w&])#(?P<code>0[0-9]{1,20}|[0-9]{5,20})(?![0-9]|[.,][0-9])"),
        lambda match: f"number {numerals.digits(match['code'])}",
    ),
    (
        re.compile(r"(?<![\w&])#(?P<code>[1-9][0-9]{3})(?![0-9]|[.,][0-9])"),
        lambda match: f"number {numerals.short(match['code'])}",
    ),
    (
        re.compile(
            rf"(?P<lead>\b[Ff]lights? (?:number |is |was )?)?\b(?P<line>(?<=light )[A-Z]{{2}}|(?<=number )[A-Z]{{2}}|"
            rf"{_AIRLINES})[ ]?(?P<number>[1-9][0-9]{{1,3}})(?![\w%]|[.,][0-9])"
        ),
        lambda match: f"{match['lead'] or ''}{' '.join(match['line'])} {numerals.short(match['number'])}",
    ),
    (
        re.compile(
            rf"\b(?P<name>(?:{_SEVERAL})[ ])(?P<numbers>[0-9]{{1,5}}(?:(?:, (?:and |or )?| and | or | to | through "
            rf"|-)[0-9]{{1,5}}){{1,9}})"
            r"(?![\w%/]|[.,:][0-9])"
        ),
        _rooms,
    ),
    (
        re.compile(
            r"\b(?P<road>(?:(?:I|CA)-|(?:US|SR|[Rr]oute|[Rr]te\.?|[Hh]wy\.?|[Hh]ighway|[Ii]nterstate)[ -])[0-9]{1,3})"
            r"(?<!\bI-9)[ ](?P<point>[NSEW]B?)(?![A-Za-z0-9'’&-]|[ ](?:forms?|visas?)\b|"
            r"\.[ ][A-Z][a-z]+ (?:St|Ave|Rd|Blvd)\b)"
        ),
        lambda match: f"{match['road']} {_POINTS[match['point'][0]] if len(match['point']) == 1 else _bound(match)}",
    ),
    (
        re.compile(r"(?<![\w-])i(?P<line>[3579])-(?P<number>[0-9]{4,5})(?P<kind>[A-Z]{0,3})(?![\w-])"),
        # Core i7-12700K: twelve seven hundred K.
        lambda match: (
            f"i {numerals.cardinal(match['line'])} "
            f"{numerals.cardinal(match['number'][:-3]) + ' ' if len(match['number']) == 5 else ''}"
            f"{numerals.short(match['number'][-3:] if len(match['number']) == 5 else match['number'])} "
            f"{' '.join(match['kind'])}"
        ).rstrip(),
    ),
    (
        re.compile(
            rf"\b(?P<name>{_ROOM})[ ](?:#|(?P<counted>number |code "
            rf"))?(?:(?P<before>[A-Z]{{1,2}})-?)?(?P<number>[0-9]{{1,5}})"
            r"(?:-?(?P<letter>[A-Za-rt-z]))?(?![\w%/]|[.,:][0-9]|-[0-9])"
        ),
        _room,
    ),
    (
        re.compile(
            rf"(?<![\w.,/$£€#:-])(?P<number>[1-9][0-9]{{1,4}})(?:-?(?P<letter>[A-Z])(?=[ ]))?(?=[ ](?:[NSEW]\.?[ "
            r"]|North "
            "|South |East |West )?"
            rf"(?:(?:[A-Z][A-Za-z']{{1,15}}|[0-9]{{1,3}}(?:st|nd|rd|th))[ ]){{0,3}}(?:{_STREET})(?![A-Za-z]))"
        ),
        lambda match: numerals.short(match["number"]) + (f" {match['letter']}" if match["letter"] else ""),
    ),
    (
        re.compile(
            rf"(?<=[a-z] )(?P<point>[NSEW])\.?(?=[ ](?:[A-Z0-9][A-Za-z0-9']{{1,15}}[ ]){{1,2}}(?:{_STREET})"
            rf"(?![A-Za-z]))"
        ),
        lambda match: _POINTS[match["point"]],
    ),
    (
        re.compile(rf"(?P<street>\b(?:{_STREET}),?[ ])(?P<point>[NS][EW])(?![A-Za-z0-9])"),
        lambda match: match["street"] + _POINTS[match["point"]],
    ),
    (
        re.compile(r"(?<![\w.,$-])(?P<number>[1-9][0-9]{2})(?P<parts>(?:\([a-z0-9]\)){1,3})(?![\w(])"),
        lambda match: f"{numerals.short(match['number'])} {spelled(match['parts'])}",
    ),
    (
        re.compile(r"\b(?P<name>I|US|SR|CA)-(?P<number>[0-9]{1,3})(?![\w-]|[.,][0-9])"),
        lambda match: f"{match['name']} {numerals.short(match['number'])}",
    ),
    (re.compile(r"(?<=\bcolon )[0-9]{3,5}\b"), lambda match: numerals.short(match[0])),
    (
        re.compile(r"(?<![\w-])(?P<number>7[0-9]7)-(?P<kind>[0-9]{1,3})(?![\w-])"),
        lambda match: f"{numerals.short(match['number'])} {numerals.short(match['kind'])}",
    ),
    (
        re.compile(
            r"(?<![\w.,/$£€#:-])(?P<number>7[0-9]7|[A3]3[0-9]0)(?P<several>s)?\b"
            r"(?=[ ](?:jets?|aircraft|airplanes?|planes?|Max|MAX)|(?<=s))"
        ),
        lambda match: (
            numerals.plural(numerals.short(match["number"])) if match["several"] else numerals.short(match["number"])
        ),
    ),
    (
        re.compile(
            rf"(?<![\w&/.-])(?P<sign>#)?(?P<code>(?:[A-Z]{{1,5}}|(?!{_OF_A_YEAR}-)[A-Z][a-z]{{2,15}})"
            rf"(?:-[0-9]{{1,12}}){{1,4}}){_NOT_COUNTED}"
        ),
        _dashed,
    ),
)
CITY_AND_STATE: Rule = (
    re.compile(rf"(?P<city>\b[A-Z][a-z]{{2,15}}, )(?P<state>{any_of(set(_STATES) - _AMBIGUOUS_STATES)})\b(?!['’-])"),
    lambda match: match["city"] + _STATES[match["state"]],
)
_NO_ROAD = (
    "Hello|Hi|Hey|Dear|Hail|Thanks?|Sorry|Please|Good|Poor|Dr|Mr|Mrs|Ms|Miss|Aunt|Uncle|Did|Do|Does|Is|Was|Are|"
    "Were|Has|Have|Had|Can|Could|Will|Would|Should|May|Might|Must|And|But|Or|So|If|When|Then|Because|While|As|"
    "Who|What|Where|Why|How|Let|Ask|Call|Tell|Meet|See|Give|With|For|From|To|Like|Yes|No|Oh|Ah|Well|Now|Today|My|Our|The"
)
"""Words in front of Ave as a name."""
AVENUE: Rule = (
    re.compile(
        rf"(?P<name>\b(?:(?!(?:{_NO_ROAD})\b)[A-Z][a-z]{{1,15}}|"
        r"[0-9]{1,3}(?:st|nd|rd|th)|[a-z]{3,9}(?:th|first|second|third))[ ])"
        r"Ave(?![A-Za-z.'’]|[ ]Maria)"
    ),
    r"\g<name>Avenue",
)
"""Without a full stop."""


def _bound(match: re.Match[str]) -> str:
    return f"{_POINTS[match['point'][0]].lower()}bound"


def _short_code(code: str) -> str:
    return numerals.short(code) if code.isdigit() and len(code) == 3 else spelled(code)
