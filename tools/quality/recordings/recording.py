"""What was heard of one sentence, and folders of it: DIR/<voice>/<number>.wav."""

import wave
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio.encoding import from_pcm, to_pcm
from cosyserve.audio.wav import WavWriter
from cosyserve.client.types import Summary
from tools.quality.recordings.recording import Sentence

Samples = NDArray[np.float32]


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
