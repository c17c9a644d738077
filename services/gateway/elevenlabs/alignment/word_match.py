"""Which written word each spoken word is."""

from collections.abc import Sequence

_SAME, _SPOKEN_ALONE, _WRITTEN_ALONE = 4, -1, -2
"""Scores: a match, a spoken word that is not written, a written word that is not spoken. A number
is one written word and several spoken ones, so the former counts less.
"""


def matched(spoken: Sequence[str], written: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions in both, ascending in both. The whole of `spoken` belongs to a beginning
    of `written`, of unknown length; of several ways to match, the best one is taken, and of equal
    ones the earliest. Behind the first words that differ, the time grows with the product of both
    lengths.
    """
    same = 0
    while same < min(len(spoken), len(written)) and spoken[same] == written[same]:
        same += 1
    rest = _best(spoken[same:], written[same:]) if same < len(spoken) else []
    return [*((place, place) for place in range(same)), *((same + i, same + j) for i, j in rest)]


def _best(spoken: Sequence[str], written: Sequence[str]) -> list[tuple[int, int]]:
    """scores[i][j] is the score of the best match of spoken[i:] and written[j:]."""
    width = len(written)
    scores = [[0] * (width + 1) for _ in range(len(spoken) + 1)]
    for i in reversed(range(len(spoken))):
        below, row = scores[i + 1], scores[i]
        row[width] = below[width] + _SPOKEN_ALONE
        for j in reversed(range(width)):
            row[j] = max(below[j] + _SPOKEN_ALONE, row[j + 1] + _WRITTEN_ALONE)
            if spoken[i] == written[j]:
                row[j] = max(row[j], below[j + 1] + _SAME)
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(spoken) and j < width:
        if spoken[i] == written[j] and scores[i][j] == scores[i + 1][j + 1] + _SAME:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif scores[i][j] == scores[i + 1][j] + _SPOKEN_ALONE:
            i += 1
        else:
            j += 1
    return pairs
