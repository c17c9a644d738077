"""Versions of programs and standards, and numbers that no other rule matched: ordinals, decades,
years, decimals, whole numbers, codes of letters and figures.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numerals import NUMBER
from services.frontend.text.rules import Rule

_PROGRAMS = (
    "Python|Node(?:\\.js)?|Java|Ruby|Go|Golang|PHP|Perl|Rust|Scala|Kotlin|Swift|Ubuntu|Debian|Fedora|CentOS|iOS|iPadOS|"
    "macOS|watchOS|Android|Windows|Chrome|Firefox|Safari|Edge|CUDA|TensorFlow|PyTorch|NumPy|Kubernetes|Docker|Postgres|"
    "PostgreSQL|MySQL|MariaDB|SQLite|MongoDB|Redis|Django|Flask|Rails|React|Angular|Vue|Spring|Linux|kernel|TLS|SSL|"
    "USB|Bluetooth|HTTP|GCC|LLVM|Clang|npm|pip|Git|Terraform|Ansible|Spark|Kafka|Elasticsearch|Nginx|nginx|Apache|"
    "TypeScript|C#|GPT|Gemini|Claude|Llama|OpenSSL|Unity|Unreal|Blender|Photoshop|Xcode|Gradle|Maven|OpenGL|Vulkan|"
    "DirectX|Qt|Helm|Envoy|gRPC|protobuf|HDMI|PCIe|Wi-Fi"
)
_VERSION = r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,4}(?:\.(?:x|\*))?"
_VERSION_END = r"(?![0-9A-Za-z%/]|\.[0-9])"
_NO_AMOUNT = r"(?![ ](?:%|[mb]illion|trillion|thousand|percent|times|k?m|cm|mm|ft|k?g)\b)"


def _parts(written: str) -> str:
    return " point ".join(
        "X" if part in ("x", "*") else numerals.pair(part) if len(part) == 2 else numerals.cardinal(part)
        for part in written.split(".")
    )


VERSIONS: tuple[Rule, ...] = (
    (
        re.compile(rf"(?<![\w.])[vV](?P<number>[0-9]{{1,4}}(?:\.[0-9]{{1,4}}){{0,4}}(?:\.x)?){_VERSION_END}"),
        lambda match: f"version {_parts(match['number'])}",
    ),
    (
        re.compile(
            rf"(?P<name>\b(?:{_PROGRAMS}|[Vv]ersions?|[Rr]eleases?|[Bb]uild|[Uu]pgrade[ds]? to|[Pp]atch|[Ss]ections?|"
            rf"[Cc]hapters?|[Ff]igures?|[Tt]ables?|[Ee]quations?|[Aa]ppendix|[Rr]ules?|[Aa]rticles?|[Cc]lauses?)[ -])v?"
            rf"(?P<number>{_VERSION}){_VERSION_END}{_NO_AMOUNT}"
        ),
        lambda match: match["name"].replace("-", " ") + _parts(match["number"]),
    ),
)


_TENS = {
    "0": "hundreds", "1": "tens", "2": "twenties", "3": "thirties", "4": "forties", "5": "fifties", "6": "sixties",
    "7": "seventies", "8": "eighties", "9": "nineties",
}  # fmt: skip
_IN_A_YEAR = re.compile(
    r"\b(?:in|since|by|of|from|until|till|before|after|during|year|early|late|mid|circa|around|spring|summer|fall|autumn|winter|class|the|this|"
    "copyright|January|February|March|April|May|June|July|August|September|October|November|December|and|to|through|"
    "between|[Qq] (?:one|two|three|four))[ ,]$",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    "[ ](?!(?:is|was|has|does|as|its|his|this|us|yes|plus|minus|times|always|perhaps|thus|years?|business|series|"
    "census|elections?|olympics|season|"
    r"crisis|class|features|includes|seems|marks|sees|saw|begins|starts|ends|remains|brings|looks|feels|plans|results|rules|games)\b)"
    r"(?:[a-z]{1,14} )?(?:people|men|women|children|students|[a-z]{2,14}[a-rt-z]s|percent|million|billion|thousand)\b"
)
_LONG_AGO = re.compile(r"\b(?:in|since|year|of|from|until|by|around) $", re.IGNORECASE)
_DECADE_OF = (
    "music|fashion|movies?|films?|style|hits|rock|pop|party|kids?|baby|bab"
    "(?:y|ies)|vibes?|sitcoms?|cartoons?|songs?|synth|disco|hair|clothes|era|nostalgia|shows?"
)
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "bn": "billion", "mn": "million"}
_APART = r"(?<![\w.,])"


def _decade(match: re.Match[str]) -> str:
    century, tens = match["century"] or "", match["tens"]
    if tens == "0" and century:
        return "two thousands" if century == "20" else f"{numerals.cardinal(century)} hundreds"
    return f"{numerals.cardinal(century) + ' ' if century else ''}{_TENS[tens]}"


def _dotted(match: re.Match[str]) -> str:
    groups = match[0].split(".")
    if len(groups) == 4:
        return " dot ".join(numerals.digits(group) for group in groups)
    blank = " " if match.string[match.end() : match.end() + 1].isalpha() else ""
    return " point ".join(numerals.cardinal(group) for group in groups) + blank


def _whole(match: re.Match[str]) -> str:
    number, text = match[0], match.string
    if number[0] == "0" and number.strip("0") and len(number) > 1:
        return numerals.with_oh(number) if number.startswith("00") else numerals.digits(number)
    if len(number) == 4 and "11" <= number[:2] <= "20" and not (number[:2] == "20" and number[2] > "6"):
        in_a_year = _IN_A_YEAR.search(text[max(0, match.start() - 12) : match.start()])
        if in_a_year or number.endswith(("50", "00")) or not _COUNTED.match(text, match.end()):
            return numerals.year(number)
    long_ago = _LONG_AGO.search(text[max(0, match.start() - 8) : match.start()]) or re.match(
        r" (?:AD|CE|BC|was the year)\b", text[match.end() : match.end() + 13]
    )
    if number[:2] == "10" and len(number) == 4 and number[2] != "0" and long_ago:
        return f"ten {numerals.pair(number[2:])}"
    return numerals.cardinal(number)


def _of_letters(match: re.Match[str]) -> str:
    """Letters and figures in one word: a type, a vitamin, a seat (`B12`, `MP3`, `4B`, `H1N1`)."""
    return re.sub("[0-9]+", lambda figures: f" {numerals.short(figures[0])} ", match[0]).strip()


_OF_A_KIND = re.compile(
    r"[ ](?:run|race|walk|TV|tv|video|monitor|display|screen|resolution|movie|footage|camera|event)\b"
)
_SEVERAL = re.compile(
    "[ ](?!(?:at|is|was|are|and|or|in|on|with|for|to|from|by|but|than|if|when|as|via|over|only|too|also|looks?|needs?|"
    "works?|now|here|there|right|because|while|without|that|so|"
    "videos|monitors|displays|screens|movies|films?|cameras|webcams?|projectors?|panels?|streams?|streaming|"
    "playback|content|support|recordings?|output|quality|upscaling|gaming|television|televisions|sets?|clips?|"
    r"trailers?|broadcasts?|signals?|textures?|version|restoration|remaster|capture|editing|images?|pictures?)\b)[a-z]"
)
"""Behind a number that counts; not behind 4K and 8K as a resolution."""


def _scaled(match: re.Match[str]) -> str:
    if (match["scale"] in "kK" and _OF_A_KIND.match(match.string, match.end())) or (
        match["scale"] == "K"
        and not match["low"]
        and (
            (
                match["count"] in ("5", "10")
                and re.search(r"\b(?:an?|the|ran|run)[ ]$", match.string[max(0, match.start() - 5) : match.start()])
            )
            # A resolution, unless something is counted.
            or (match["count"] in ("4", "8") and not _SEVERAL.match(match.string, match.end()))
        )
    ):
        return f"{numerals.amount(match['count'])} K"
    low = f"{numerals.amount(match['low'])} to " if match["low"] else ""
    return f"{low}{numerals.amount(match['count'])} {_SCALES[match['scale']]}"


_MANY = (
    "people|users|followers|subscribers|views|viewers|listeners|customers|downloads|residents|inhabitants|households|"
    "visitors|members|players|voters|readers|streams|tourists|passengers|workers|employees|children|adults|copies|jobs|"
    "homes|clients|accounts|tons|tonnes|barrels|dollars|euros|pounds|Americans|Europeans|fans"
)
MILLIONS: tuple[Rule, ...] = (
    (
        re.compile(rf"{_APART}(?<![$£€])(?P<count>{NUMBER})m(?=[ ](?:[a-z]{{4,10}}[ ])?(?:{_MANY})\b)"),
        lambda match: f"{numerals.amount(match['count'])} million",
    ),
)
"""Before the units, where `m` is a metre."""
DECADES: tuple[Rule, ...] = (
    (re.compile(r"(?<![A-Za-z0-9.,])(?P<century>1[1-9]|20)(?P<tens>[0-9])0['’]?s(?![A-Za-z0-9])"), _decade),
    (
        re.compile(
            r"(?:(?<![A-Za-z0-9])['’]|(?P<lead>\b(?:[Tt]he|his|her|my|their|our|your|early|mid|late|low|high|upper)[ "
            r"-])"
            ")(?P<century>)(?P<tens>[1-9])0['’]?s(?![A-Za-z0-9])"
        ),
        lambda match: (match["lead"] or "") + _decade(match),
    ),
    (re.compile(rf"(?<![A-Za-z0-9.,])(?P<century>)(?P<tens>[2-9])0s(?= (?:{_DECADE_OF})\b)"), _decade),
)
RULES: tuple[Rule, ...] = (
    (re.compile(r"(?<![0-9.])[0-9]{1,4}(?:\.[0-9]{1,4}){2,5}(?![0-9]|\.[0-9])"), _dotted),
    (
        re.compile(
            rf"(?<![\w.])(?P<number>{numerals.GROUPED}|[0-9]{{1,15}})(?:st|nd|rd|th)(?P<several>s?)(?![A-Za-z0-9])"
        ),
        lambda match: numerals.ordinal(match["number"]) + match["several"],
    ),
    (
        re.compile(
            f"{_APART}(?:(?P<low>{NUMBER})[kKM]?[ ]?-[ ]?)?(?P<count>{NUMBER})[ ]?(?P<scale>k|K|M|bn|mn|B(?= (?:people|"
            "users|views|dollars|parameters|downloads|rows|records|requests|tokens)))(?![A-Za-z0-9])"
        ),
        _scaled,
    ),
    (
        re.compile(r"(?<![\w.,])(?P<number>[1-9][0-9])ers(?![A-Za-z0-9])"),
        lambda match: numerals.cardinal(match["number"]).removesuffix("e") + "ers",
    ),
    (
        re.compile(r"(?<![\w.,])(?P<number>[0-9]{2,4})['’]?s(?![A-Za-z0-9])"),
        lambda match: numerals.plural(numerals.short(match["number"])),
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9_.])(?=[A-Za-z0-9]{0,24}[0-9])(?=[A-Za-z0-9]{0,24}[A-Za-z])[A-Za-z0-9]{2,24}"
            r"(?![A-Za-z0-9_]|[.,][0-9])"
        ),
        _of_letters,
    ),
    (
        re.compile(r"(?<![\w.,])(?P<number>[0-9]{1,15}\.[0-9]{1,15})(?P<letters>[A-Za-z]{1,16})(?![A-Za-z0-9])"),
        lambda match: f"{numerals.amount(match['number'])} {match['letters']}",
    ),
    (
        re.compile(
            rf"(?<![\w.,])(?:{NUMBER})(?<=[.][0-9])(?![0-9]|[.,][0-9])|(?<![\w.,])"
            rf"(?:[0-9]{{1,15}}|{numerals.GROUPED})?\.[0-9]{{1,20}}(?![0-9]|[.,][0-9])"
        ),
        lambda match: numerals.amount(match[0]),
    ),
    (re.compile(rf"(?<![0-9.,]){numerals.GROUPED}(?![0-9]|[.,][0-9])"), lambda match: numerals.cardinal(match[0])),
    (re.compile(r"(?<![0-9])[0-9]{1,15}(?![0-9])"), _whole),
)
