"""Whether a sentence in the Latin script is in another language than English, by its most frequent
words: the frontend takes a sentence without a language code for English by its script alone.
"""

from collections.abc import Iterable

_FREQUENT = {
    "de": "und der das ist nicht ein eine einen ich wir ihr sie mit für auf dem zu von auch sich mein haben wird sind",
    "fr": "le les des est une dans je vous nous et pas que qui avec pour il elle ce cette sur mais où très du au c'est",
    "es": "el los las una que por con para está muy es en mi su más pero como yo tú hoy del qué",
    "it": "il che di una sono gli è non per questo questa con mia mio della nel ho ma anche molto ci",
    "pt": "não uma você com os as em meu minha para é do da mais muito que está",
    "nl": "het een niet van ik je zijn dat wij met voor op maar ook naar",
}  # fmt: skip
_ALSO_ENGLISH = frozenset(("do", "as", "me", "con", "per", "sur", "also", "mi", "ma", "ho", "il", "em", "op"))
_FOREIGN = frozenset(word for words in _FREQUENT.values() for word in words.split()) - _ALSO_ENGLISH
_LEAST, _SHARE = 2, 0.2


def is_another_language(words: Iterable[str]) -> bool:
    """Whether at least two words, and a fifth of all, are frequent in another language and not in
    English.
    """
    plain = [word.strip(".,;:!?¿¡\"'()").lower() for word in words]
    found = sum(word in _FOREIGN for word in plain)
    return found >= _LEAST and found >= _SHARE * len(plain)
