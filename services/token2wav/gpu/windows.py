"""What a window of the vocoder on a GPU is."""

from dataclasses import dataclass

from cosyserve.spec import CHUNK_FRAMES

WINDOW_FRAMES = CHUNK_FRAMES


@dataclass(frozen=True)
class Render:
    """Samples of `count` (1..50) frames from `first` on. end: frames of the sentence, None while more may come."""

    slot: int
    first: int
    count: int
    end: int | None
    seed: int
    sentence: int
