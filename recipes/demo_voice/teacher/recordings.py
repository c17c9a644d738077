"""From the teacher's samples to a recording (silence trimmed, loudness made equal, spoilt ones
refused), and the shards in which recordings are kept, safe against an end at any moment.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN
from recipes.demo_voice.training.speech import Recording, read_recordings

LOUDNESS = 0.09
"""Root mean square of the active parts of every recording."""
_FRAME = 240
_MARGIN = SAMPLE_RATE // 10
_PEAK = 0.95
_QUIETEST = 1e-3
_SHORTEST, _LONGEST = 0.6, 16.0
_SLOWEST, _FASTEST = 4.0, 26.0


class Refused(Exception):
    """A recording that is not fit to learn from; the argument says why, in one word."""


def finish(samples: NDArray[np.float32], characters: int) -> NDArray[np.int16]:
    """Samples at 24 kHz of a text of `characters` characters, as signed 16-bit ones, a whole number
    of speech tokens long.

    About 100 ms around the speech are kept, 10 ms at either end fade. Raises Refused: `silent`,
    `peaky` (too quiet at full scale), `short` and `long` in seconds, `slow` and `fast` in
    characters per second.
    """
    frames = len(samples) // _FRAME
    power = (
        np.square(samples[: frames * _FRAME].reshape(frames, _FRAME)).mean(axis=1)
        if frames
        else np.zeros(1, np.float32)
    )
    level = np.sqrt(power)
    active = np.sqrt(power[level > 0.1 * level.max()].mean()) if level.max() > _QUIETEST else 0.0
    if active < _QUIETEST:
        raise Refused("silent")
    loud = np.flatnonzero(level > 0.02 * level.max())
    start = max(0, int(loud[0]) * _FRAME - _MARGIN)
    stop = min(len(samples), (int(loud[-1]) + 1) * _FRAME + _MARGIN)
    tokens = -(-(stop - start) // SAMPLES_PER_TOKEN)
    _check(tokens * SAMPLES_PER_TOKEN / SAMPLE_RATE, characters)
    piece = samples[start : start + tokens * SAMPLES_PER_TOKEN].copy()
    gain = min(LOUDNESS / active, _PEAK / float(np.abs(piece).max()))
    if gain < 0.5 * LOUDNESS / active:
        raise Refused("peaky")
    piece *= gain
    ramp = np.linspace(0, 1, _FRAME, dtype=np.float32)
    piece[:_FRAME] *= ramp
    piece[-_FRAME:] *= ramp[::-1]
    whole = np.zeros(tokens * SAMPLES_PER_TOKEN, np.int16)
    whole[: len(piece)] = np.rint(piece * 32767)
    return whole


def _check(seconds: float, characters: int) -> None:
    for wrong, reason in (
        (seconds < _SHORTEST, "short"),
        (seconds > _LONGEST, "long"),
        (characters < _SLOWEST * seconds, "slow"),
        (characters > _FASTEST * seconds, "fast"),
    ):
        if wrong:
            raise Refused(reason)


class Shard:
    """NAME.s16 and NAME.tsv (see recipes.demo_voice.training.speech), appended to. What an
    interrupted run left unfinished is cut off.

    A shard that got no recording leaves no files.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = audio, table = folder / f"{name}.s16", folder / f"{name}.tsv"
        audio.touch()
        recordings = list(read_recordings(table, audio.stat().st_size // 2))
        self._end = max((each.start + each.samples for each in recordings), default=0)
        os.truncate(audio, 2 * self._end)
        table.write_text("".join(each.line() for each in recordings), encoding="utf-8")
        self._audio = audio.open("ab")
        self._table = table.open("a", encoding="utf-8")

    def add(self, recordings: Iterable[tuple[int, str, float, NDArray[np.int16]]]) -> None:
        """Sentence number, voice, speed and samples of each; the samples are on disk before the
        line that names them.
        """
        lines = []
        for sentence, voice, speed, samples in recordings:
            self._audio.write(samples.astype("<i2").tobytes())
            lines.append(Recording(sentence, voice, speed, self._end, len(samples)).line())
            self._end += len(samples)
        self._audio.flush()
        self._table.writelines(lines)
        self._table.flush()

    def __enter__(self) -> "Shard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._audio.close()
        self._table.close()
        if not self._end:
            for path in self._paths:
                path.unlink()


def recorded(folder: Path) -> Iterator[Recording]:
    """The recordings of all shards of a folder."""
    for audio in sorted(folder.glob("*.s16")):
        yield from read_recordings(audio.with_suffix(".tsv"), audio.stat().st_size // 2)
