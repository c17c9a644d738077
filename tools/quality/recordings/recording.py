"""What is spoken and what was heard of it: lists of sentences, and folders of their recordings,
DIR/<voice>/<number>.wav.

`sentences.txt`, the held-out list, holds 170 sentences of Mozilla Common Voice's CC0 lists and 30
from templates (times, numbers, announcements), 4 to 20 words each, none of which any model here was
trained on. Drawn in the order of the sentences' SHA-256 within bands of length, from those whose
words all occur at least 20 times in lower case in the lists (so no names, no rare spellings), at
most one of each template; a sentence that was no plain English when read through gave its place to
the next.
"""

import wave
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio.encoding import from_pcm, to_pcm
from cosyserve.audio.wav import WavWriter
from cosyserve.client.types import Summary

HELD_OUT = Path(__file__).parents[1] / "sentences.txt"
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Sentence:
    """A line of the list. number: its line, from 1; it also names the sentence's sound file."""

    number: int
    text: str


@dataclass(frozen=True)
class Recording:
    """Mono samples [n] in [-1, 1] at `sample_rate` hertz. borders: where a message of the stream
    ended and the next one began.
    """

    sentence: Sentence
    samples: Samples
    sample_rate: int
    borders: tuple[int, ...] = ()
    first_sound_seconds: float | None = None
    """From the request to its first sound, by the caller's clock."""
    real_time_factor: float | None = None
    """Seconds of waiting per second of audio, by the caller's clock."""
    summary: Summary | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def read_sentences(path: Path = HELD_OUT) -> list[Sentence]:
    """All sentences of a file, one a line; blank lines are left out but counted. Raises ValueError
    when there are none.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    sentences = [Sentence(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not sentences:
        raise ValueError(f"{path} holds no sentence")
    return sentences


def spread(sentences: list[Sentence], count: int | None) -> list[Sentence]:
    """`count` sentences evenly spread over the list, the first among them; all when count is None
    or no smaller than the list.

    Raises ValueError for a count below 1.
    """
    if count is None or count >= len(sentences):
        return sentences
    if count < 1:
        raise ValueError(f"{count} sentences were asked for, must be at least 1")
    return [sentences[index * len(sentences) // count] for index in range(count)]


def file_name(sentence: Sentence) -> str:
    """Of the sentence's recording within a voice's folder."""
    return f"{sentence.number:03d}.wav"


def write_recording(folder: Path, recording: Recording) -> None:
    """As 16-bit WAV, folder made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with WavWriter(folder / file_name(recording.sentence), recording.sample_rate) as file:
        file.write(to_pcm(recording.samples))


def read_recordings(folder: Path, sentences: list[Sentence]) -> list[Recording]:
    """Those sentences that the folder has. Raises ValueError when it has none of them, or for a
    file that is not 16-bit mono.
    """
    recordings = [
        _read(folder / file_name(sentence), sentence)
        for sentence in sentences
        if (folder / file_name(sentence)).is_file()
    ]
    if not recordings:
        raise ValueError(f"{folder} has no recording of the list: the first would be {file_name(sentences[0])}")
    return recordings


def voice_folders(directory: Path) -> dict[str, Path]:
    """The voices of a directory of recordings: its folders, or itself when it holds the files."""
    folders = {folder.name: folder for folder in sorted(directory.iterdir()) if folder.is_dir()}
    return folders or {directory.name: directory}


def _read(path: Path, sentence: Sentence) -> Recording:
    with wave.open(str(path)) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise ValueError(
                f"{path} has {file.getnchannels()} channels of {8 * file.getsampwidth()} bits, must be mono of 16 bits"
            )
        return Recording(sentence, from_pcm(file.readframes(file.getnframes())), file.getframerate())
