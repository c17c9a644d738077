"""Whether a text is read as one of its spoken forms: Chinese by its characters, English by its
sounds.

Marks and blanks never count. English words are compared without stress, a tap is a t, and
unstressed ɪ, ᵻ and ə are one sound; words that sound different next to others (the, to, a, read) do
so alike on both sides, since both are pronounced as one row of words without marks.
"""

import re
import unicodedata
from typing import NamedTuple, Protocol

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.tokenizers.phonemes.endings import plural
from services.frontend.tokenizers.phonemes.symbols import PHONES, STRESS, spell
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from services.frontend.tokenizers.placeholders import BEGIN, BLANK, END
from tools.quality.words.reading_judges import spoken_forms


class Judgement(NamedTuple):
    """What is said of one text, in words, and whether that is one of its spoken forms."""

    said: str
    right: bool


class Judge(Protocol):
    """Judges the readings of one language."""

    def judge(self, text: str, spoken: str) -> Judgement:
        """spoken: a line of `spoken_forms`; raises ValueError as that does."""
        ...


class ChineseJudge:
    """Compares the normalised text with the forms, without marks, blanks and case; 〇 is 零."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

    def judge(self, text: str, spoken: str) -> Judgement:
        said = self._analyzer.normalise(text)
        heard = _bare(said)
        return Judgement(said, any(_bare(form) == heard for form in spoken_forms(spoken)))


class EnglishJudge:
    """Compares what the phoneme tokenizer makes of the text, normalised as it is served, with the
    phonemes of the forms, which are plain words: `A` is the name of the letter, `U's` of several,
    `/nwˈɪn/` are phonemes in the alphabet of the model."""

    def __init__(self, analyzer: Analyzer, tokenizer: PhonemeTokenizer) -> None:
        self._analyzer = analyzer
        self._tokenizer = tokenizer

    def judge(self, text: str, spoken: str) -> Judgement:
        words = [word for sentence in self._analyzer.sentences(text) for word, _, _ in sentence.words]
        heard = self._sounds(" ".join(words))
        forms = (wanted for form in spoken_forms(spoken) for wanted in (form, _LETTER_FIRST.sub(_letter, form)))
        return Judgement(" ".join(words), any(self._sounds(form) == heard for form in forms))

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
