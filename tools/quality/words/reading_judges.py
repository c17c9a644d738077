"""Whether a text is read as one of its spoken forms: Chinese by its characters, English by its
sounds.

Marks and blanks never count. English words are compared without stress, a tap is a t, and
unstressed ɪ, ᵻ and ə are one sound; words that sound different next to others (the, to, a, read) do
so alike on both sides, since both are pronounced as one row of words without marks.

The spoken forms that a text may have, written in one line: `at {seven thirty/half past seven} |
at nineteen thirty`.

` | ` divides whole alternatives. Braces hold the choices at one place, divided by `/`; one of them
may be empty. Braces do not nest. Outside braces a `/` has no meaning here (`/nwˈɪn/` is a stretch
of phonemes, which the judge of English reads).
"""

import itertools
import re
import unicodedata

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.tokenizers.phonemes.endings import plural
from services.frontend.tokenizers.phonemes.symbols import PHONES, STRESS, spell
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from services.frontend.tokenizers.placeholders import BEGIN, BLANK, END

BETWEEN = " | "
MOST = 4096
"""Forms of one line: more are a mistake in it."""
_CHOICE = re.compile(r"\{([^{}]*)\}")


Judgement = tuple[str, bool]
"""What is said of one text, in words, and whether that is one of its spoken forms."""


def spoken_forms(line: str) -> list[str]:
    """Every form that `line` allows, in order, blanks around it taken off and inner ones single.

    Raises ValueError for an empty line, a brace without its partner or within another, and for more
    than 4096 forms.
    """
    forms: list[str] = []
    for alternative in line.split(BETWEEN):
        # Literal text and choices take turns: the pattern has one group.
        parts = _CHOICE.split(alternative)
        if any("{" in part or "}" in part for part in parts):
            raise ValueError(f"braces do not pair in {line!r}")
        places = [part.split("/") if place % 2 else [part] for place, part in enumerate(parts)]
        forms += [
            " ".join("".join(chosen).split()) for chosen in itertools.islice(itertools.product(*places), MOST + 1)
        ]
        if len(forms) > MOST:
            raise ValueError(f"more than {MOST} forms in {line!r}")
    if not all(forms):
        raise ValueError(f"an empty form in {line!r}")
    return forms


class ChineseJudge:
    """Compares the normalised text with the forms, without marks, blanks and case; 〇 is 零."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

    def judge(self, text: str, spoken: str) -> Judgement:
        """spoken: a line of `spoken_forms`; raises ValueError as that does."""
        said = self._analyzer.normalise(text)
        heard = _bare(said)
        return said, any(_bare(form) == heard for form in spoken_forms(spoken))


class EnglishJudge:
    """Compares what the phoneme tokenizer makes of the text, normalised as it is served, with the
    phonemes of the forms, which are plain words: `A` is the name of the letter, `U's` of several,
    `/nwˈɪn/` are phonemes in the alphabet of the model."""

    def __init__(self, analyzer: Analyzer, tokenizer: PhonemeTokenizer) -> None:
        self._analyzer = analyzer
        self._tokenizer = tokenizer

    def judge(self, text: str, spoken: str) -> Judgement:
        """As `ChineseJudge.judge`."""
        words = [word for sentence in self._analyzer.sentences(text) for word, _, _ in sentence.words]
        heard = self._sounds(" ".join(words))
        forms = (wanted for form in spoken_forms(spoken) for wanted in (form, _LETTER_FIRST.sub(_letter, form)))
        return " ".join(words), any(self._sounds(form) == heard for form in forms)

    def _sounds(self, words: str) -> str:
        words = _GIVEN.sub(lambda match: f"{BEGIN}{match[1].replace(' ', BLANK)}{END}", _LETTERS.sub(_letters, words))
        bare = "".join(character for character in words if not _divides(character))
        return folded(self._tokenizer.phonemes(bare))


_LETTERS = re.compile(r"\b([A-Z])['’]s\b")
_LETTER_FIRST = re.compile(r"^A(?= )")
"""An article for the tokenizer when it comes first, a letter in `A B C`."""
_GIVEN = re.compile(rf"(?<![^\s])/([{PHONES}{STRESS} ]+)/(?![^\s])")
_REDUCED = re.compile(f"(?<![{STRESS}])[ɪᵻᵊɐ]")
_SAME_SOUND = str.maketrans({"ɾ": "t", **dict.fromkeys(STRESS + 'ː .,!?;:—…"()')})


def folded(phonemes: str) -> str:
    """`phonemes` as they are compared: without stress, blanks and marks, a tap as t, unstressed
    short vowels as ə.
    """
    return _REDUCED.sub("ə", phonemes).translate(_SAME_SOUND)


def _letters(match: re.Match[str]) -> str:
    return f"/{plural(spell(match[1]))}/"


def _letter(match: re.Match[str]) -> str:
    return f"/{spell(match[0])}/"


def _divides(character: str) -> bool:
    """Marks that make a pause, which changes the sound of the word before it; apostrophes belong to
    words.
    """
    return character in '.,!?;:—…"()'


def _bare(text: str) -> str:
    """Letters and figures alone, in lower case."""
    return "".join(character for character in text.lower() if unicodedata.category(character)[0] not in "PSZC").replace(
        "〇", "零"
    )
