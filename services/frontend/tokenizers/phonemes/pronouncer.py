"""The pronunciation of each word in its context, and the symbol string of all words."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from services.frontend.tokenizers.phonemes import endings
from services.frontend.tokenizers.phonemes.homographs import form_of, word_set
from services.frontend.tokenizers.phonemes.letter_to_sound import LetterModel
from services.frontend.tokenizers.phonemes.lexicon import Lexicon
from services.frontend.tokenizers.phonemes.reading import GIVEN, Word
from services.frontend.tokenizers.phonemes.symbols import BLANK, spell, starts_with_vowel

MOST_LETTERS = 40
"""Longer runs of letters are not words: they are spelled."""
_CACHED_WORDS = 4096
_WEAK = {
    "a": ("ɐ", "ɐ"),
    "an": ("ɐn", "ɐn"),
    "the": ("ðə", "ði"),
    "to": ("tə", "tʊ"),
    "am": ("ɐm", "ɐm"),
    "i": ("ˌI", "ˌI"),
}
"""Before a consonant, before a vowel."""
_BEFORE_PAUSE = {"a": "ɐ", "an": "ˈæn", "the": "ðə", "to": "tu", "am": "ˈæm", "i": "ˈI", "in": "ˈɪn"}
_UH_BEFORE_OH = "ˈʌh"
"""`Uh oh`. Two vowels in a row became one: it was heard as `Oh`."""
_SHORT_WORDS = word_set(
    "a all am an and any are as at bad be big but by can did do few for get go had has have he her him his how i if in "
    "is me my new no "
    "not now of off oh ok old on one or our out own she so the too two up was we why yes you your"
)
"""Words that are often capitalised for emphasis; other short words in capitals are acronyms."""
_ACRONYM_LETTERS = 4
_SENTENCE_END = frozenset(".?!…;:—")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ACRONYMS = re.compile(r"(?P<letters>[A-Z]{2,5})(?:s|'s)")
"""Acronyms in the plural or genitive."""
_VOWEL_LETTERS = frozenset("aeiouyAEIOUY")


class Pronouncer:
    """Immutable and thread-safe."""

    def __init__(self, lexicon: Lexicon, letters: LetterModel) -> None:
        self._words, self._forms = lexicon
        self._letters = letters
        self._unknown = lru_cache(maxsize=_CACHED_WORDS)(self._without_lexicon)

    def pronounce(self, words: Sequence[Word]) -> list[str]:
        """One pronunciation for each of `words`: symbols of `symbols.PHONES` and `symbols.STRESS`,
        never empty.
        """
        shouted = 2 * sum(word.text.isupper() for word in words if len(word.text) > 1) > len(words) > 1
        pronunciations: list[str] = []
        start = 0
        for place, word in enumerate(words):
            if word.mark in _SENTENCE_END or place == len(words) - 1:
                pronunciations += self._sentence(words[start : place + 1], shouted)
                start = place + 1
        return pronunciations

    def knows(self, word: str) -> bool:
        """Whether the pronunciation of `word` comes from the lexicon, possibly with an ending, and
        not from its letters.
        """
        if word[0] == GIVEN:
            return True
        word = self._trimmed(word)
        return (
            "." in word
            or len(word) == 1
            or (word.isupper() and self._is_acronym(word))
            or word.lower() in _WEAK
            or self._entry(word) is not None
            or self._derived(word.lower()) is not None
        )

    def _sentence(self, words: Sequence[Word], shouted: bool) -> list[str]:
        texts = [self._trimmed(word.text) for word in words]
        lower = [text.lower() for text in texts]
        pronunciations = [""] * len(words)
        sound = ""
        # Backwards, since weak words take their form from the sound that follows.
        for place in range(len(words) - 1, -1, -1):
            if words[place].mark:
                sound = ""
            sound = self._word(texts, lower, place, sound, shouted)
            pronunciations[place] = sound
        return pronunciations

    def _word(self, texts: Sequence[str], lower: Sequence[str], place: int, following: str, shouted: bool) -> str:
        """following: the next pronunciation when no pause precedes it, else empty."""
        text, plain = texts[place], lower[place]
        if text[0] == GIVEN:
            return text[1:]
        if "." in text:
            return spell(text)
        if plain == "uh" and following and lower[place + 1] == "oh":
            return _UH_BEFORE_OH
        named = text in ("A", "AM") and not shouted and (place > 0 or not following)
        if not named and not following and plain in _BEFORE_PAUSE:
            return _BEFORE_PAUSE[plain]
        if not named and plain in _WEAK:
            return _WEAK[plain][starts_with_vowel(following)]
        if (
            named
            or len(text) == 1
            or (text.isupper() and self._is_acronym(text) and not (shouted and self._entry(text)))
        ):
            return spell(text)
        # The first word is always capitalised: mostly it is the common one.
        entry = plain if place == 0 and plain in self._words else self._entry(text)
        acronym = None if shouted else _ACRONYMS.fullmatch(text)
        if acronym is not None and (entry is None or entry != text):
            return endings.plural(self._acronym(acronym["letters"]))
        if entry is None:
            return self._unknown(text)
        forms = self._forms.get(entry)
        if forms is not None:
            form = "FINAL" if not following and "FINAL" in forms else form_of(forms, lower, place)
            if form is not None:
                return forms[form]
        return self._words.get(entry) or spell(text)

    def _acronym(self, letters: str) -> str:
        """The pronunciation of an acronym without its plural: as a word where the lexicon has it,
        else letter by letter.
        """
        known = self._words.get(letters)
        if known is None and len(letters) >= _ACRONYM_LETTERS:
            known = self._words.get(letters.lower())
        return known or spell(letters)

    def _is_acronym(self, text: str) -> bool:
        if text in self._words:
            return False
        if len(text) > _ACRONYM_LETTERS:
            return _VOWEL_LETTERS.isdisjoint(text)
        plain = text.lower()
        return (
            plain not in _SHORT_WORDS and (len(text) < _ACRONYM_LETTERS or plain not in self._words) and "'" not in text
        )

    def _trimmed(self, text: str) -> str:
        """`text` without the apostrophes around it, unless they belong to the word ('em, goin')."""
        if text[0] != "'" and text[-1] != "'":
            return text
        bare = text.strip("'")
        plain = text.lower()
        candidates = (plain, plain.removesuffix("'"), plain.removeprefix("'"))
        return next((word for word in candidates if "'" in (word[0], word[-1]) and word in self._words), bare)

    def _entry(self, text: str) -> str | None:
        """The spelling of the word in the lexicon."""
        return next((spelling for spelling in (text, text.lower()) if spelling in self._words), None)

    def _derived(self, plain: str) -> str | None:
        """The pronunciation of a known stem with an ending."""
        parts = endings.split_clitic(plain)
        if parts is not None and parts[0] in self._words:
            return endings.with_clitic(self._words[parts[0]], parts[1])
        known = ((self._words[stem], ending) for stem, ending in endings.stems(plain) if stem in self._words)
        return next((endings.with_ending(pronunciation, ending) for pronunciation, ending in known), None)

    def _without_lexicon(self, text: str) -> str:
        """The pronunciation of a word that the lexicon lacks, from its parts, else from its
        letters.
        """
        if len(text) > MOST_LETTERS:
            return spell(text)
        plain = text.lower()
        derived = self._derived(plain)
        if derived is not None:
            return derived
        parts = endings.split_clitic(plain)
        if parts is not None:
            return endings.with_clitic(self._without_lexicon(text[: len(parts[0])]), parts[1])
        return "".join(self._words.get(hump.lower()) or self._from_letters(hump) for hump in _HUMP.split(text))

    def _from_letters(self, text: str) -> str:
        letters = text.lower().replace("'", "")
        if len(letters) < 2 or _VOWEL_LETTERS.isdisjoint(letters):
            return spell(letters)
        return self._letters.pronounce(letters) or spell(letters)


class PhonemeString(NamedTuple):
    """Words as one string of symbols: a blank between two words, each mark after its word. words:
    each with the index of its first symbol and the number of its symbols; given phonemes are a word
    between slashes.
    """

    symbols: str
    words: list[tuple[str, int, int]]


def join_pronunciations(words: Sequence[Word], pronunciations: Sequence[str], *, first: bool) -> PhonemeString:
    """first: `words` begin a text; elsewhere a blank precedes them."""
    symbols, places = "", []
    for place, (word, sound) in enumerate(zip(words, pronunciations, strict=True)):
        symbols += "" if first and not place else BLANK
        if sound:
            places.append((f"/{sound}/" if word.text.startswith(GIVEN) else word.text, len(symbols), len(sound)))
        symbols += sound + word.mark
    return PhonemeString(symbols, places)
