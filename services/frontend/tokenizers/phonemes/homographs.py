"""Homographs: chooses the pronunciation of a word with one spelling and several pronunciations
(read, live, record, use) from its neighbours.

A handful of rules instead of a tagger: in most sentences the words before it decide, in the rest
the words after it.
"""

from collections.abc import Callable, Mapping, Sequence


def word_set(words: str) -> frozenset[str]:
    """The blank-separated `words`."""
    return frozenset(words.split())


_BASE_FOLLOWS = word_set(
    "to will would can could shall should may might must do does did don't doesn't didn't won't wouldn't can't cannot "
    "couldn't shouldn't "
    "mustn't let's please i'll you'll he'll she'll it'll we'll they'll i'd you'd he'd she'd we'd they'd gonna"
)
"""A verb in its plain form follows these."""
_AUXILIARIES = word_set(
    "will would can could shall should may might must do does did don't doesn't didn't won't wouldn't can't"
)
_PLURAL_SUBJECTS = word_set("i you we they who people")
_SINGULAR_SUBJECTS = word_set("he she it who which that this")
_INTENSIFIERS = word_set("very so too quite rather more most less as")
_HAVE = word_set("have has had having haven't hasn't hadn't i've you've we've they've could've would've should've")
_BE = word_set(
    "be been being is are was were am isn't aren't wasn't weren't i'm you're he's she's it's we're they're that's"
)
_BEFORE_NOUN = word_set(
    "a an the my your his her its our their this that these those some any no every each another much such what which "
    "whose "
    "of in on for with from by at into without under through about first second last next new old good bad great "
    "little big own same other "
    "long short public free full high low one two three single common proper daily personal heavy"
)
_OBJECTS = word_set("the a an this these those my your his her its our their me you him it us them some any all")
_PAST = word_set("yesterday ago last was were had did didn't went said came saw took then once thought knew felt told")
_ADVERBS = word_set(
    "not also always often never just only still already really ever even now both all usually sometimes"
)


def form_of(forms: Mapping[str, str], words: Sequence[str], place: int) -> str | None:
    """The form (lexicon.FORMS) in which `words[place]` is used, None for the usual one.

    forms: what the word has; words: the sentence in lower case.
    """
    word = words[place]
    before = words[place - 1] if place else ""
    if before in _ADVERBS and place > 1:
        before = words[place - 2]
    after = words[place + 1] if place + 1 < len(words) else ""
    rule = _OWN_RULES.get(word)
    if rule is not None:
        form = rule(words, place, before, after)
        return form if form in forms else None
    return next((form for form in _uses(words, place, before, after) if form in forms), None)


def _uses(words: Sequence[str], place: int, before: str, after: str) -> tuple[str, ...]:
    """The uses of a word that has several, most likely first; empty when its neighbours do not
    decide.
    """
    plural = words[place].endswith("s")
    if before == "which" and place == 1:
        return ("NOUN",)
    if before in _BASE_FOLLOWS or (plural and before in _SINGULAR_SUBJECTS) or _inverted(words, place):
        return ("VERB",)
    if before in _BEFORE_NOUN:
        return ("NOUN", "ADJ")
    if before in _HAVE or _inverted(words, place, _HAVE):
        return ("PAST",)
    if before in _BE:
        return ("PAST", "ADJ")
    if before in _INTENSIFIERS:
        return ("ADJ",)
    if before in _PLURAL_SUBJECTS or after in _OBJECTS or _joined_to_verb(words, place):
        return ("VERB",)
    return ("NOUN",) if after in ("of", "for") else ("ADJ",) if after == "with" else ()


def _inverted(words: Sequence[str], place: int, helpers: frozenset[str] = _AUXILIARIES) -> bool:
    """do you read, can the children use; with other `helpers`: have you read"""
    subject = words[place - 1] if place > 1 else ""
    if subject in _PLURAL_SUBJECTS or subject in ("he", "she", "it"):
        return words[place - 2] in helpers
    return place > 2 and words[place - 2] in _OBJECTS and words[place - 3] in helpers


def _joined_to_verb(words: Sequence[str], place: int) -> bool:
    """to edit and record"""
    return place > 2 and words[place - 1] in ("and", "or") and words[place - 3] in _BASE_FOLLOWS


def _read(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    if before in _BASE_FOLLOWS or _inverted(words, place):
        return None
    perfect = before in _HAVE or before in _BE or before in ("he", "she", "it") or _inverted(words, place, _HAVE)
    return "PAST" if perfect or not _PAST.isdisjoint(words) else None


def _live(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    verb = before in _BASE_FOLLOWS or before in _PLURAL_SUBJECTS or _inverted(words, place)
    in_real_time = (
        before in _BEFORE_NOUN
        or before in _BE
        or after in _LIVE_THINGS
        or before in ("go", "going", "went", "broadcast", "streamed")
    )
    return "VERB" if verb or not in_real_time else None


def _lives(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    verb = before in _SINGULAR_SUBJECTS or (before not in _BEFORE_NOUN and after in _WHERE)
    return "VERB" if verb else None


def _used(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    """used to live, get used to it; but: is used to make."""
    if after != "to":
        return None
    second_after = words[place + 2] if place + 2 < len(words) else ""
    describes_purpose = before in ("is", "are", "was", "were", "be", "been", "being") and not (
        second_after in _OBJECTS or second_after.endswith("ing")
    )
    return None if describes_purpose else "PAST"


def _use(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    verb = before in _BASE_FOLLOWS or _inverted(words, place) or before in _PLURAL_SUBJECTS
    noun = (before in _BEFORE_NOUN and before not in ("that", "which", "what")) or before in _BE or after == "of"
    return "NOUN" if noun and not verb else None


def _close(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    if before in _BASE_FOLLOWS or before in ("i", "we", "they") or _inverted(words, place):
        return "VERB"
    if after in ("to", "by", "together", "enough") or before in _BE:
        return None
    return "VERB" if after in _OBJECTS and (place == 0 or before in ("and", "then", "or", "ever")) else None


def _wound(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    return "PAST" if after in ("up", "around", "down", "round", "through", "back") else None


def _that(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    """Stressed as a demonstrative (that is right, after that), weak as a conjunction."""
    pointing = (
        place == 0
        or after in ("is", "was", "will", "would", "one", "way", "day", "night", "time")
        or before in _POINTERS
    )
    return "STRONG" if pointing or not after else None


def _minute(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    return (
        "ADJ"
        if after in ("detail", "details", "amount", "amounts", "quantities", "quantity", "particles", "differences")
        else None
    )


def _lead(words: Sequence[str], place: int, before: str, after: str) -> str | None:
    metal = (
        after in ("pipe", "pipes", "paint", "poisoning", "pencil", "bullet", "bullets", "weight", "acid")
        or before == "of"
    )
    return "NOUN" if metal and before not in _BASE_FOLLOWS else None


_WHERE = word_set("in at with on near here there alone by next across under")
_POINTERS = word_set("of like after before for about with from by at in on do did than all")
_LIVE_THINGS = word_set(
    "music show shows concert concerts broadcast broadcasts stream streams tv television audience audiences coverage "
    "performance "
    "performances wire wires from bait ammunition animals animal fish recording recordings event events version feed"
)
_OWN_RULES: dict[str, Callable[[Sequence[str], int, str, str], str | None]] = {
    "read": _read, "live": _live, "lives": _lives, "used": _used, "use": _use, "close": _close, "wound": _wound,
    "that": _that, "minute": _minute, "lead": _lead,
}  # fmt: skip
