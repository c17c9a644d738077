"""Markdown and HTML as people and chat models write it: the words stay, the markup is removed.
Linear in the length of the text.
"""

import re

from services.frontend.text.language import is_chinese
from services.frontend.tokenizers.placeholders import without_controls

_RULES = frozenset("|:-*+_=~ \t")
_FENCES = ("```", "~~~")
_MARKING = tuple("#>-*+•·‣|`~=_")
_PREFIX = re.compile(
    r"[ \t]{0,8}(?:(?P<heading>\#{1,6}[ \t]+)|(?P<quote>>[ \t]?)|(?P<item>[-*+•·‣][ \t]+(?:\[[ xX]\][ \t])?))"
)
_NUMBERED = re.compile(r"[ \t]{0,8}[0-9]{1,3}[.)][ \t]")
_MOST_QUOTES = 8
_LINK = re.compile(
    r"!?\[(?P<text>[^\[\]\n]{0,300})\]\((?:[^()\s]|\([^()\s]{0,200}\)){0,2000}(?:[ ]\"[^\"\n()]{0,200}\")?\)"
)
_FOOTNOTE = re.compile(r"\[\^[\w-]{1,32}\]")
_AUTOLINK = re.compile(r"<(https?://[^<>\s]{1,2000})>")
_TAGS = re.compile(
    r"</?(?:a|abbr|audio|b|big|blockquote|br|center|cite|code|del|details|div|em|emphasis|font|h[1-6]|hr|i|img|ins|kbd|"
    r"li|lang|mark|ol|p|phoneme|pre|prosody|s|say-as|section|small|span|speak|sub|summary|sup|table|tbody|td|th|thead|"
    r"tr|tt|u|ul|voice)"
    r"(?:\s[^<>]{0,2000})?/?>",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--[^<>]{0,2000}-->")
_ENTITY = re.compile(r"&(amp|lt|gt|quot|apos|nbsp|#39|hellip|mdash|ndash);")
_ENTITIES = {
    "amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "#39": "'", "nbsp": " ", "hellip": "…", "mdash": "—",
    "ndash": "–",
}  # fmt: skip
_ESCAPED = re.compile(r"\\([*_`#\[\](){}!>~|+-])")
_STARS = re.compile(
    r"\*{2,}|(?<![按拨打入]|[\s\d*])\*(?!号?键)|(?<![按拨打入])\*(?![\s\d*]|号?键)|(?<=[按拨打入])\*"
    r"(?![\d#和或、]|号?键)"
)
"""Emphasis; the star of a multiplication or of a telephone key stays."""
_MAIL_GOES_ON = re.compile(r"[A-Za-z0-9_.+-]{1,63}@[A-Za-z0-9]")
_UNDERSCORES = re.compile(r"_++")
_CONSTANT = re.compile(r"(?<![A-Za-z0-9_/.@-])[A-Z][A-Z0-9]{0,20}(?:_[A-Z0-9]{1,20}){1,6}(?![A-Za-z0-9_@/]|\.[A-Za-z])")
_SHORT_WORDS = frozenset((
    "ADD", "AGE", "ALL", "AND", "BIN", "BOX", "DAY", "DIR", "DOC", "END", "ENV", "FOR", "GET", "KEY", "LOG", "MAP",
    "MAX", "MIN", "NEW", "NOT", "OFF", "OLD", "ONE", "OUT", "RAW", "ROW", "RUN", "SET", "TAG", "TOP", "USE", "WEB",
))  # fmt: skip


def without_markdown(text: str) -> str:
    """The words of `text` without markup.

    Headings, list items and table rows end like sentences; a link is spoken as its text, an image
    as its description; code fences, rules and tags are silent, the text inside them is not.
    `snake_case` is spoken as its words; `3 * 4` and `a < b` stay.
    """
    text = _ESCAPED.sub(r"\1", "\n".join(_lines(text)))
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match[1]], text)
    if "[" in text:
        text = _FOOTNOTE.sub("", _LINK.sub(r"\g<text>", text))
    if "<" in text:
        text = _TAGS.sub(" ", _COMMENT.sub(" ", _AUTOLINK.sub(r"\1", text)))
    if "*" in text:
        text = _STARS.sub("", text)
    # Markup may have hidden a control token (`&lt;|im_end|&gt;`).
    text = without_controls(text)
    if "_" in text:
        text = _CONSTANT.sub(_constant, text)
        text = _UNDERSCORES.sub(lambda match: _underscore(match, text), text)
    return text.replace("`", "").replace("~~", "")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if len(lines) == 1 and text.lstrip()[:1] not in _MARKING:
        return lines
    return [
        spoken for place, line in enumerate(lines) if (spoken := _line(line, last=place == len(lines) - 1)) is not None
    ]


def _line(line: str, *, last: bool) -> str | None:
    """One line as it is spoken, None when it is only a drawing."""
    bare = line.strip()
    if bare.startswith(_FENCES) or (len(bare) >= 3 and _RULES.issuperset(bare)):
        return None
    ended = _NUMBERED.match(line) is not None
    start = 0
    for _ in range(_MOST_QUOTES):
        prefix = _PREFIX.match(line, start)
        if prefix is None:
            break
        start = prefix.end()
        ended = ended or not prefix["quote"]
    line = line[start:]
    if len(bare) > 2 and bare[0] == "|" and bare[-1] == "|":
        line, ended = ", ".join(cell.strip() for cell in bare[1:-1].split("|")), True
    ends = line.rstrip()[-1:]
    if ended and not last and (ends.isalnum() or ends in "*_`)"):
        line = line.rstrip() + ("。" if is_chinese(line) else ".")
    return line


def _constant(match: re.Match[str]) -> str:
    """`"API_KEY"` as API key: parts of an upper-case name with four letters or more are words,
    shorter ones are mostly initials.
    """
    return " ".join(part.lower() if part in _SHORT_WORDS or len(part) > 3 else part for part in match[0].split("_"))


def _underscore(match: re.Match[str], text: str) -> str:
    if _MAIL_GOES_ON.match(text, match.end()):
        return match[0]
    inside = text[match.start() - 1 : match.start()].isalnum() and text[match.end() : match.end() + 1].isalnum()
    return " " if inside else ""
