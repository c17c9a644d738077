"""The measures of all voices, as a table for people and as JSON for programs."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tools.quality.reports.voice_quality import SentenceQuality, VoiceQuality
from tools.quality.sound.faults import FAULTS

_WORST = 10
_LONGEST_LINE = 140


def as_table(voices: Sequence[VoiceQuality]) -> str:
    """A column a voice, then the worst sentences. What was measured of no voice has no row."""
    columns = {quality.voice: _column(quality) for quality in voices}
    names = max((list(column) for column in columns.values()), key=len)
    width = max(16, *(len(voice) + 2 for voice in columns))
    lines = [f"{'':<42}" + "".join(f"{voice:>{width}}" for voice in columns)]
    lines += [
        f"{name:<42}" + "".join(f"{column.get(name, '-'):>{width}}" for column in columns.values()) for name in names
    ]
    for quality in voices:
        if worst := worst_sentences(quality):
            lines += ["", f"{quality.voice}, worst sentences", *map(_line, worst)]
    return "\n".join(lines)


def as_json(voices: Sequence[VoiceQuality], exceeded: Sequence[str]) -> str:
    """Everything measured, sentence by sentence; what is no number is null."""
    summary = {quality.voice: asdict(quality) | _aggregates(quality) for quality in voices}
    return json.dumps(_finite({"ok": not exceeded, "exceeded": list(exceeded), "voices": summary}), indent=1)


def worst_sentences(quality: VoiceQuality) -> list[SentenceQuality]:
    """Those with a fault, then those with most word errors for their length; ten at most."""
    bad = [
        sentence for sentence in quality.sentences if sentence.fault or sentence.ending.cut or sentence.errors.errors
    ]
    return sorted(bad, key=lambda sentence: (sentence.fault is None, -sentence.errors.rate))[:_WORST]


def _column(quality: VoiceQuality) -> dict[str, str]:
    errors = quality.errors
    cells = {
        "sentences, words": f"{len(quality.sentences)}, {errors.words}",
        "seconds of audio": f"{sum(sentence.seconds for sentence in quality.sentences):.0f}",
        "word error rate": _percent(errors.rate),
        "  substituted, added, left out": f"{errors.substitutions}, {errors.insertions}, {errors.deletions}",
        ", ".join(FAULTS): ", ".join(str(len(quality.faults(kind))) for kind in FAULTS),
        "cut off at the end": str(len(quality.cut_off)),
        "duration over expected": f"{quality.duration_ratio:.2f}",
    }
    if quality.naturalness is not None:
        cells["naturalness (DNSMOS overall)"] = f"{quality.naturalness:.2f}"
    if quality.similarity:
        likeness = quality.similarity
        to = {
            "itself": likeness.to_self,
            "the nearest other": likeness.to_others,
            "the reference": likeness.to_reference,
        }
        cells |= {f"speaker's likeness to {whom}": f"{cosine:.3f}" for whom, cosine in to.items() if cosine is not None}
    if quality.seams.borders:
        cells["borders in the streams"] = str(quality.seams.borders)
        cells["  steps against elsewhere, mean, 99 %"] = f"{quality.seams.step_mean:.2f}, {quality.seams.step_99:.2f}"
        cells["  jumps against elsewhere, mean, 99 %"] = f"{quality.seams.jump_mean:.2f}, {quality.seams.jump_99:.2f}"
    if quality.whole:
        cells["as a whole: word error rate"] = _percent(quality.whole.errors.rate)
        cells["  streaming costs"] = _percent(errors.rate - quality.whole.errors.rate)
        if quality.whole.spectral_distance is not None:
            cells["  spectral distance of the stream"] = f"{quality.whole.spectral_distance:.2f} dB"
        cells["in other cuts: sentences that differ"] = str(quality.whole.cuts_unequal)
        cells["  largest difference of a sample"] = f"{quality.whole.cuts_difference:.1e}"
    if quality.speed:
        cells["first sound (median)"] = f"{quality.speed.first_sound:.0f} ms"
        cells |= {f"  {_name(stage)}": f"{cost:.0f} ms" for stage, cost in quality.speed.first_sound_of_stage.items()}
        cells["real-time factor (median)"] = f"{quality.speed.real_time_factor:.3f}"
        cells |= {
            f"  of {_name(stage)}": f"{cost:.3f}" for stage, cost in quality.speed.real_time_factor_of_stage.items()
        }
    return cells


def _line(sentence: SentenceQuality) -> str:
    errors = sentence.errors.errors
    counted = f"{errors} word error{'' if errors == 1 else 's'}"
    what = ", ".join(filter(None, (sentence.fault, "cut off" if sentence.ending.cut else "", counted)))
    return f"  {sentence.number:03d} {what}\n      said:  {sentence.text}\n      heard: {_cut(sentence.heard)}"


def _aggregates(quality: VoiceQuality) -> dict[str, Any]:
    return {
        "errors": asdict(quality.errors) | {"rate": quality.errors.rate},
        "faults": {kind: len(quality.faults(kind)) for kind in FAULTS} | {"cut off": len(quality.cut_off)},
        "naturalness": quality.naturalness,
        "duration_ratio": quality.duration_ratio,
        "whole_word_error_rate": quality.whole and quality.whole.errors.rate,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} ..."


def _percent(rate: float) -> str:
    return f"{100 * rate:.2f} %"


def _name(stage: str) -> str:
    return stage.replace("_", " ")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
