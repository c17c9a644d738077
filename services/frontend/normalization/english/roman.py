"""Roman numerals: chapters and wars as amounts, kings and popes as ordinals."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.text.rules import Rule

_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_NUMERAL = r"(?=[IVXLCDM])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"
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


def value(numeral: str) -> int:
    """The value of a well-formed numeral."""
    numeral = numeral.upper()
    values = [_VALUES[letter] for letter in numeral]
    return sum(-own if own < following else own for own, following in zip(values, [*values[1:], 0], strict=True))


def _amount(match: re.Match[str]) -> str:
    return f"{match['name']} {numerals.cardinal(str(value(match['numeral'])))}"


def _ordinal(match: re.Match[str]) -> str:
    numeral = match["numeral"]
    if (
        numeral == "I"
        and not _REIGNED.match(match.string, match.end())
        and not _TITLED.search(match.string[max(0, match.start() - 20) : match.start("numeral")])
    ):
        return match[0]
    return f"{match['name']} the {numerals.ordinal(str(value(numeral)))}"


_PRONOUN = r"(?!I (?:[a-z]|['’]))(?!I['’])"
RULES: tuple[Rule, ...] = (
    (re.compile(r"\b(?P<name>World War) (?P<numeral>II?)(?![A-Za-z]|['’]m)"), _amount),
    (re.compile(rf"\b(?P<name>{PARTS}) {_PRONOUN}(?![CDLM]\b)(?P<numeral>{_NUMERAL})\b(?!['’]|\.[A-Za-z])"), _amount),
    (
        re.compile(rf"\b(?P<name>[Ss]cene|[Pp]art|[Ss]ection|[Pp]age|[Aa]ct|[Bb]ook|[Ii]tem) {_SMALL}(?![A-Za-z'’])"),
        _amount,
    ),
    (
        re.compile(
            r"\b(?P<name>[Tt]ype) (?P<numeral>I)(?= "
            r"(?:error|diabetes|collagen|fracture|supernova|interferon|reaction|survey|and)\b)"
        ),
        _amount,
    ),
    (re.compile(rf"\b(?P<name>{_LOWER}) (?!I\b|[CDLM]\b)(?P<numeral>{_NUMERAL})\b(?!['’])"), _amount),
    (
        re.compile(
            rf"\b(?!Malcolm X\b)(?P<name>{RULERS}) "
            rf"(?P<numeral>(?=[IVX])(?:X{{0,3}}(?:IX|IV|V?I{{0,3}})))(?![A-Za-z]|\.[A-Za-z])"
        ),
        _ordinal,
    ),
    (
        re.compile(
            r"(?<=[a-z] )(?P<numeral>X{0,2}(?:VI{2,3}|I{2,3}|IX|XI{1,3}|XI?V|XVI{0,3}|XI?X)|XX[IV]+)"
            r"(?![A-Za-z]|['’]|\.[A-Za-z])"
        ),
        lambda match: numerals.cardinal(str(value(match["numeral"]))),
    ),
)
