"""From recordings to a table, JSON and limits, with a recogniser whose answers are given."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.quality.tones import fading, recording, tone
from tools.quality.recordings.collect import Recordings, from_folder
from tools.quality.recordings.recording import HELD_OUT, Recording, Sentence, read_sentences, spread, write_recording
from tools.quality.reports.report import Limits, as_json
from tools.quality.reports.voice_quality import VoiceQuality, measure
from tools.quality.words.spelling import words_of

TEXTS = ["We left early.", "The river was too deep to cross.", "There is a way.", "I promised to wait here."]


def _quality(mishearing: dict[str, str], *, other_cuts: float = 0.0) -> VoiceQuality:
    streamed = [
        recording(fading(tone(0.3 + 0.06 * len(text))), 5000, number=number, text=text)
        for number, text in enumerate(TEXTS, start=1)
    ]
    cut_otherwise = [recording(one.samples + np.float32(other_cuts), number=one.sentence.number) for one in streamed]

    def hear(one: Recording) -> str:
        return mishearing.get(one.sentence.text, one.sentence.text)

    return measure(Recordings("clara", streamed, cut_otherwise, streamed), hear, lambda _: 3.2, None, None)


def test_a_voice_that_says_what_is_written_keeps_every_limit() -> None:
    quality = _quality({})
    assert quality.errors.rate == 0
    assert not quality.marred
    assert Limits(0.0, 3.0, 0, whole_difference=0.0).exceeded(quality) == []
    assert json.loads(as_json([quality], []))["ok"]


def test_each_limit_that_is_exceeded_is_one_line() -> None:
    quality = _quality({TEXTS[0]: "We left.", TEXTS[1]: "The river."}, other_cuts=0.01)
    assert quality.errors.rate == pytest.approx(6 / 19)
    assert [sentence.number for sentence in quality.faults("stops early")] == [2]
    lines = Limits(0.3, 3.5, 0, similarity=0.8).exceeded(quality)
    assert [re.sub(r"[\d.]+", "N", line) for line in lines] == [
        "clara: word error rate is N, at most N allowed",
        "clara: sentences with a fault is N, at most N allowed",
        "clara: naturalness is N, at least N wanted",
        "clara: similarity to the speaker was not measured, at least N wanted",
        "clara: samples depend on where the stream is cut in N sentences",
    ]
    assert Limits(0.4).exceeded(quality) == ["clara: samples depend on where the stream is cut in 4 sentences"]


def test_a_folder_goes_through_the_same_measures(tmp_path: Path) -> None:
    sentences = [Sentence(number, text) for number, text in enumerate(TEXTS, start=1)]
    for sentence in sentences[1:]:
        write_recording(tmp_path / "clara", recording(tone(1.0), number=sentence.number))
    (voice,) = from_folder(tmp_path, None, sentences)
    assert (voice.voice, [one.sentence.number for one in voice.streamed]) == ("clara", [2, 3, 4])
    assert voice.streamed[0].samples == pytest.approx(tone(1.0), abs=1e-4)
    with pytest.raises(ValueError, match="no folder for karl"):
        from_folder(tmp_path, ["karl"], sentences)


def test_the_held_out_list_is_plain_and_its_short_form_is_spread_over_it() -> None:
    sentences = read_sentences(HELD_OUT)
    assert len({sentence.text for sentence in sentences}) == len(sentences) == 200
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z',.!? ]+[.!?]", sentence.text)
        assert 4 <= len(sentence.text.split()) <= 20
        assert words_of(sentence.text)
    assert [sentence.number for sentence in spread(sentences, 5)] == [1, 41, 81, 121, 161]
    assert spread(sentences, None) == sentences
    with pytest.raises(ValueError, match="at least 1"):
        spread(sentences, 0)
