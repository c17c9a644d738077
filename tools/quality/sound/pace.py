"""How long a sentence should take: as long as the reference took, or what the rest of the list
makes one expect.
"""

from collections.abc import Sequence

import numpy as np

from tools.quality.recordings.recording import Recording


def duration_ratios(recordings: Sequence[Recording], reference: Sequence[Recording] | None) -> list[float]:
    """Seconds of each recording over its expected seconds.

    Expected is the reference's recording of the sentence where there is one; where not, a straight
    line through the list itself, seconds against letters, fitted by medians (Theil-Sen), so that
    single runaways do not move it.
    """
    spoken = {recording.sentence.number: recording.seconds for recording in reference or ()}
    letters = [sum(map(str.isalpha, recording.sentence.text)) for recording in recordings]
    fitted = _line(letters, [recording.seconds for recording in recordings])
    expected = [
        spoken.get(recording.sentence.number, guess) for recording, guess in zip(recordings, fitted, strict=True)
    ]
    return [recording.seconds / seconds for recording, seconds in zip(recordings, expected, strict=True)]


def _line(letters: Sequence[int], seconds: Sequence[float]) -> list[float]:
    x, y = np.asarray(letters, np.float64), np.asarray(seconds, np.float64)
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    slope = float(np.median((y[second] - y[first])[apart] / (x[second] - x[first])[apart])) if apart.any() else 0.0
    middle = float(np.median(y - slope * x))
    shortest = max(float(y.min()), 1e-3)
    return [max(middle + slope * count, shortest) for count in x]
