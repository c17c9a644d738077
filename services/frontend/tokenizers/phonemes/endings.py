"""English endings: their pronunciation after a stem, and the possible stems of a word."""

from collections.abc import Iterator

from services.frontend.tokenizers.phonemes.symbols import VOWELS

_VOICELESS = "ptkfθ"
_HISSING = "szʃʒʧʤ"
_TAPPED_AFTER = VOWELS | {"ɹ"}
_CLITICS = {"'ll": "ᵊl", "'ve": "əv", "'re": "əɹ", "'m": "m", "n't": "ᵊnt"}


def plural(stem: str) -> str:
    """The plural of a pronunciation: cats, dogs, horses."""
    if stem[-1] in _HISSING:
        return stem + "ᵻz"
    return stem + ("s" if stem[-1] in _VOICELESS else "z")


def past(stem: str) -> str:
    """The past tense: walked, played, added; a t between vowels becomes a tap."""
    if stem[-1] == "t":
        return _tapped(stem) + "ᵻd"
    if stem[-1] == "d":
        return stem + "ᵻd"
    return stem + ("t" if stem[-1] in _VOICELESS or stem[-1] in "sʃʧ" else "d")


def progressive(stem: str) -> str:
    """The progressive: walking, waiting."""
    return _tapped(stem) + "ɪŋ"


def _tapped(stem: str) -> str:
    return stem[:-1] + "ɾ" if stem[-1] == "t" and stem[-2:-1] in _TAPPED_AFTER else stem


def split_clitic(word: str) -> tuple[str, str] | None:
    """`("name", "'s")` of a lower-case word with 's, 'd, 'll, 've, 're, 'm or n't at its end."""
    for clitic in ("'s", "'d", *_CLITICS):
        if word.endswith(clitic) and len(word) > len(clitic):
            return word[: -len(clitic)], clitic
    return None


def with_clitic(stem: str, clitic: str) -> str:
    """The pronunciation `stem` with a clitic of `split_clitic`."""
    if clitic == "'s":
        return plural(stem)
    if clitic == "'d":
        return stem + ("ᵻd" if stem[-1] in "td" else "d")
    return stem + _CLITICS[clitic]


def stems(word: str) -> Iterator[tuple[str, str]]:
    """Possible stems of a lower-case word with their endings, the likelier first. Endings: those of
    `with_ending`.
    """
    length = len(word)
    if word.endswith("s") and not word.endswith("ss") and length > 3:
        yield word[:-1], "s"
        if word.endswith("es") and length > 4:
            yield word[:-2], "s"
        if word.endswith("ies") and length > 4:
            yield word[:-3] + "y", "s"
    if word.endswith("ed") and length > 4:
        yield from ((stem, "ed") for stem in _verb_stems(word[:-2]))
        if word.endswith("ied"):
            yield word[:-3] + "y", "ed"
    if word.endswith("ing") and length > 5:
        yield from ((stem, "ing") for stem in _verb_stems(word[:-3]))
    if word.endswith("in'") and length > 5:
        yield word[:-1] + "g", "in'"
    for ending in ("ness", "less", "like", "ship"):
        if word.endswith(ending) and length > len(ending) + 2:
            yield word[: -len(ending)], ending


def with_ending(stem: str, ending: str) -> str:
    """The pronunciation `stem` with an ending of `stems`."""
    if ending == "in'":
        return stem[:-1] + "n"
    return (
        {"s": plural, "ed": past, "ing": progressive}[ending](stem)
        if ending in ("s", "ed", "ing")
        else stem + _SYLLABLES[ending]
    )


_SYLLABLES = {"ness": "nəs", "less": "ləs", "like": "lˌIk", "ship": "ʃˌɪp"}


def _verb_stems(rest: str) -> Iterator[str]:
    """walk(ed), mak(ing), stopp(ed)"""
    if len(rest) > 2 and rest[-1] == rest[-2]:
        yield rest[:-1]
    yield rest
    yield rest + "e"
