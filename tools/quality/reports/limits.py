"""What a voice must reach."""

from dataclasses import dataclass

from tools.quality.reports.voice_quality import VoiceQuality


@dataclass(frozen=True)
class Limits:
    """None: not asked for. faults: sentences silent, running on, stopping early or cut off, per
    voice; seam_ratio: largest of seams.Seams; whole_difference: by how much the word error rate of
    the stream may exceed that of the whole."""

    word_error_rate: float | None = None
    naturalness: float | None = None
    faults: int | None = None
    seam_ratio: float | None = None
    similarity: float | None = None
    whole_difference: float | None = None

    def exceeded(self, quality: VoiceQuality) -> list[str]:
        """One line for each limit that the voice does not keep; a measure that is missing keeps no
        limit. Samples that depend on where the stream was cut are a broken promise and need no
        limit."""
        lines = [
            _above("word error rate", quality.errors.rate, self.word_error_rate),
            _above("sentences with a fault", len(quality.marred), self.faults),
            _above("seams", quality.seams.largest if quality.seams.borders else None, self.seam_ratio),
            _below("naturalness", quality.naturalness, self.naturalness),
            _below("similarity to the speaker", _likeness(quality), self.similarity),
        ]
        if self.whole_difference is not None:
            whole = quality.errors.rate - quality.whole.errors.rate if quality.whole else None
            lines.append(_above("word error rate streamed above whole", whole, self.whole_difference))
        if quality.whole and quality.whole.cuts_unequal:
            lines.append(f"samples depend on where the stream is cut in {quality.whole.cuts_unequal} sentences")
        return [f"{quality.voice}: {line}" for line in lines if line]


def _likeness(quality: VoiceQuality) -> float | None:
    if quality.similarity is None:
        return None
    return quality.similarity.to_self if quality.similarity.to_reference is None else quality.similarity.to_reference


def _above(name: str, measured: float | None, limit: float | None) -> str | None:
    if limit is None or (measured is not None and measured <= limit):
        return None
    return f"{name} {_text(measured)}, at most {limit:g} allowed"


def _below(name: str, measured: float | None, limit: float | None) -> str | None:
    if limit is None or (measured is not None and measured >= limit):
        return None
    return f"{name} {_text(measured)}, at least {limit:g} wanted"


def _text(measured: float | None) -> str:
    return "was not measured" if measured is None else f"is {measured:.4g}"
