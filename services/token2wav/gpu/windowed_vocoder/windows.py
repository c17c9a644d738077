"""Windows to render on a GPU, and how they are grouped into batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.spec import CHUNK_FRAMES, SAMPLES_PER_MEL_FRAME

WINDOW_FRAMES = CHUNK_FRAMES


@dataclass(frozen=True)
class Render:
    """Samples of `count` (1..50) frames from `first` on. end: frames of the sentence, None while
    more may arrive.
    """

    slot: int
    first: int
    count: int
    end: int | None
    seed: int
    sentence: int

    @property
    def ended(self) -> bool:
        """Whether the sentence ends with it."""
        return self.end is not None and self.first + self.count >= self.end

    def determined(self, late: int) -> slice:
        """The samples of the window's row that are valid: those of its frames, and before them
        `late` samples that waited for its first one; so many of the last frame wait again.
        """
        end = SAMPLES_PER_MEL_FRAME * self.count + (late if self.ended else 0)
        return slice(0 if self.first else late, end)


_AROUND, _ALONE = 7, 150
"""Cost of a window in addition to its own frames, and of a batch in addition to its windows, in
frames: an H200 takes 2.2 us for one.
"""


def batches(counts: Sequence[int], lengths: Sequence[int], buckets: Sequence[int]) -> list[tuple[int, list[int]]]:
    """How windows of `counts` frames are rendered: lengths, and the indices of the windows in each
    batch, in order of length.

    Short windows are rendered separately if that is less work than padding them to long ones; a
    batch is as large as the bucket that holds it.
    """
    ascending, largest = sorted(lengths), max(buckets)

    def cost(frames: int, windows: int) -> int:
        whole, rest = divmod(windows, largest)
        sizes = [largest] * whole + [min(size for size in buckets if size >= rest)] * (rest > 0)
        return sum(_ALONE + (frames + _AROUND) * size for size in sizes)

    groups: list[tuple[int, list[int]]] = []
    for frames in ascending:
        placed = {at for _, part in groups for at in part}
        fitting = [at for at, count in enumerate(counts) if count <= frames and at not in placed]
        if not fitting:
            continue
        if groups:
            before = groups[-1]
            apart = cost(before[0], len(before[1])) + cost(frames, len(fitting))
            if apart >= cost(frames, len(before[1]) + len(fitting)):
                groups.pop()
                fitting = sorted(before[1] + fitting)
        groups.append((frames, fitting))
    return [(frames, part[at : at + largest]) for frames, part in groups for at in range(0, len(part), largest)]
