"""Where one worker's recordings go, safe against an end at any moment."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from recipes.demo_voice.training.speech import Recording, read_recordings


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
