"""All measures of one voice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from cosyserve.client.types import STAGES
from tools.quality.recordings.collect import Recordings
from tools.quality.recordings.recording import Recording
from tools.quality.sound.faults import Ending, Fault, duration_ratios, ending, fault_of
from tools.quality.sound.seams import Seams, largest_difference, seams, spectral_distance
from tools.quality.sound.speakers import Similarity
from tools.quality.words.alignment import Alignment, WordErrors, align
from tools.quality.words.spelling import words_of

Hear = Callable[[Recording], str]
Rate = Callable[[Recording], float]


@dataclass(frozen=True)
class SentenceQuality:
    """One recording. heard: what the recogniser understood. naturalness: DNSMOS overall, None when
    it was not measured.
    """

    number: int
    text: str
    heard: str
    errors: WordErrors
    fault: Fault | None
    seconds: float
    duration_ratio: float
    ending: Ending
    naturalness: float | None


@dataclass(frozen=True)
class WholeComparison:
    """Streamed against the same sentences otherwise.

    cuts_difference: largest difference of samples against the stream in long hops, 0 by promise;
    cuts_unequal: how many sentences differ at all. errors: of the whole. spectral_distance: between
    stream and whole in dB, mean over the sentences that are as long both ways; None where none is.
    """

    cuts_difference: float
    cuts_unequal: int
    errors: WordErrors
    spectral_distance: float | None


@dataclass(frozen=True)
class Speed:
    """Medians. Times to the first sound in milliseconds; real-time factors in seconds of work per
    second of audio; stages by name.
    """

    first_sound: float
    real_time_factor: float
    first_sound_of_stage: dict[str, float]
    real_time_factor_of_stage: dict[str, float]


@dataclass(frozen=True)
class VoiceQuality:
    """One voice; what was not measured is None."""

    voice: str
    sentences: list[SentenceQuality]
    seams: Seams
    whole: WholeComparison | None
    similarity: Similarity | None
    speed: Speed | None

    @property
    def errors(self) -> WordErrors:
        return sum((sentence.errors for sentence in self.sentences), WordErrors())

    @property
    def naturalness(self) -> float | None:
        scores = [sentence.naturalness for sentence in self.sentences if sentence.naturalness is not None]
        return fmean(scores) if scores else None

    @property
    def duration_ratio(self) -> float:
        return fmean(sentence.duration_ratio for sentence in self.sentences)

    def faults(self, kind: Fault) -> list[SentenceQuality]:
        """The sentences with that fault."""
        return [sentence for sentence in self.sentences if sentence.fault == kind]

    @property
    def cut_off(self) -> list[SentenceQuality]:
        """The sentences whose sound ends before it has come to rest."""
        return [sentence for sentence in self.sentences if sentence.ending.cut]

    @property
    def marred(self) -> list[SentenceQuality]:
        """The sentences with a fault or cut off."""
        return [sentence for sentence in self.sentences if sentence.fault or sentence.ending.cut]


def measure(
    recordings: Recordings,
    hear: Hear,
    rate: Rate | None,
    reference: Sequence[Recording] | None,
    similarity: Similarity | None,
) -> VoiceQuality:
    """hear: the recogniser. rate: naturalness; None leaves it out. reference: another speaker's
    recordings of the same sentences.
    """
    streamed = recordings.streamed
    ratios = duration_ratios(streamed, reference)
    sentences = []
    for recording, ratio in zip(streamed, ratios, strict=True):
        heard = hear(recording)
        alignment = _align(recording, heard)
        sentences.append(
            SentenceQuality(
                recording.sentence.number,
                recording.sentence.text,
                heard,
                alignment.errors,
                fault_of(recording.samples, alignment, ratio),
                recording.seconds,
                ratio,
                ending(recording),
                None if rate is None else rate(recording),
            )
        )
    return VoiceQuality(
        recordings.voice, sentences, seams(streamed), _compare(recordings, hear), similarity, _speed(streamed)
    )


def _align(recording: Recording, heard: str) -> Alignment:
    return align(words_of(recording.sentence.text), words_of(heard))


def _compare(recordings: Recordings, hear: Hear) -> WholeComparison | None:
    if not recordings.whole:
        return None
    differences = [
        largest_difference(one.samples, other.samples)
        for one, other in zip(recordings.streamed, recordings.long_hops, strict=True)
    ]
    distances = [
        spectral_distance(one.samples, other.samples)
        for one, other in zip(recordings.streamed, recordings.whole, strict=True)
    ]
    errors = sum((_align(recording, hear(recording)).errors for recording in recordings.whole), WordErrors())
    comparable = [distance for distance in distances if distance is not None]
    return WholeComparison(
        max(differences), sum(map(bool, differences)), errors, fmean(comparable) if comparable else None
    )


def _speed(streamed: Sequence[Recording]) -> Speed | None:
    timed = [(recording, recording.summary) for recording in streamed if recording.summary is not None]
    if not timed:
        return None
    return Speed(
        1000 * median(recording.first_sound_seconds or 0.0 for recording, _ in timed),
        median(recording.real_time_factor or 0.0 for recording, _ in timed),
        {stage: median(summary.first_sound[stage] for _, summary in timed) for stage in STAGES},
        {
            stage: median(summary.total[stage] / 1000 / recording.seconds for recording, summary in timed)
            for stage in STAGES
        },
    )
