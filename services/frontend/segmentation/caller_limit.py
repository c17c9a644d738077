"""A caller's limit of sentence length: parts of about the same length, so that none is a few words.

Lengths are characters of the normalised text; a placeholder (a sound tag, given phonemes) is one
character and is never cut.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from cosyserve.errors import InvalidRequest
from services.frontend.tokenizers.placeholders import before_marks

LEAST, MOST = 10, 20_000
"""Characters that a caller may set as the limit."""
_CLAUSE_END = re.compile(r"[，、；：—…）][”’」』》]?|[,;:)](?=\s)")
_BLANK = re.compile(r"(?=\s)")


def require_limit(characters: int, field: str) -> int:
    """`characters`, 0 for no limit. Raises InvalidRequest, which names `field`, outside the
    range.
    """
    if characters and not LEAST <= characters <= MOST:
        raise InvalidRequest(f"{field} is {characters}, allowed are {LEAST} to {MOST}, and 0 for no limit")
    return characters


def cut_evenly(segment: str, limit: int) -> Iterator[str]:
    """`segment` in parts of at most `limit` characters (0: as it is), which joined are the segment.

    Each cut is the end of a clause, else a blank, else between two characters: of the places that
    leave a part at least half as long as equal parts would be, the one nearest to equal parts.
    """
    while limit and len(segment) > limit:
        parts = -(-len(segment) // limit)
        cut = _nearest_cut(segment, -(-len(segment) // parts), limit)
        yield segment[:cut]
        segment = segment[cut:]
    yield segment


def _nearest_cut(segment: str, even: int, limit: int) -> int:
    """even: characters of each part if all are equal."""
    for ends in (_CLAUSE_END, _BLANK):
        # One character more than a part may have shows what follows the last place.
        places = (match.end() for match in ends.finditer(segment, 0, limit + 1))
        if place := _nearest(places, even, limit):
            return place
    cut = even
    while cut > 1 and unicodedata.combining(segment[cut]):
        cut -= 1
    return before_marks(segment, cut)


def _nearest(places: Iterable[int], even: int, limit: int) -> int:
    """0 where there is none."""
    allowed = [place for place in places if max(even // 2, 1) <= place <= limit]
    return min(allowed, key=lambda place: abs(place - even), default=0)
