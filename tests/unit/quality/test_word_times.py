"""Word times are compared where both sides wrote the same word, and with the sound where it comes
out of silence.
"""

from pathlib import Path

import numpy as np
import pytest

from cosyserve.client.types import WordTime
from tools.quality import word_times
from tools.quality.word_times import Compared, same_words, sounding
from tools.quality.words.recognition import HeardWord

NO_SOUND = (None, None)


def test_only_words_that_both_have_are_compared() -> None:
    reported = [WordTime(text, at, at + 0.2, 0) for at, text in enumerate(("The", "old", "man's", "hat"))]
    heard = [HeardWord(text, at + 0.1, at + 0.2) for at, text in ((0, "the"), (2, "Man's"), (3, "cat,"), (4, "hat."))]
    pairs = same_words(reported, heard)
    assert [(ours.text, theirs.text) for ours, theirs in pairs] == [("The", "the"), ("man's", "Man's"), ("hat", "hat.")]


def test_bias_is_signed_and_the_rest_is_not() -> None:
    compared = Compared()
    for error in (-0.1, -0.1, -0.1, 0.1):
        compared.add([WordTime("a", 1.0 + error, 2.0, 0)], [HeardWord("a", 1.0, 2.0)], NO_SOUND)
    start, end = compared.exactness()
    assert (start.words, start.bias, start.median, start.ninety_percent) == (4, -0.05, 0.1, 0.1)
    assert start.spread == pytest.approx(0.12)
    assert (end.bias, end.median, end.ninety_percent, end.spread) == (0, 0, 0, 0)


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="no word"):
        Compared().exactness()


@pytest.mark.parametrize(
    ("silence", "sound", "rest", "found"),
    [
        (0.1, 0.5, 0.2, (0.1, 0.6)),
        (0.02, 0.5, 0.2, (None, 0.52)),
        (0.1, 0.5, 0.03, (0.1, None)),
        (0.1, 0.0, 0.1, (None, None)),
    ],
)
def test_sound_begins_and_ends_next_to_silence(
    silence: float, sound: float, rest: float, found: tuple[float | None, float | None]
) -> None:
    levels = [(silence, 0.001), (sound, 0.1), (rest, 0.001)]
    samples = np.concatenate([np.full(round(seconds * 24_000), level, np.float32) for seconds, level in levels])
    for measured, expected in zip(sounding(samples, 24_000), found, strict=True):
        assert measured == (None if expected is None else pytest.approx(expected))


def test_a_directory_that_is_no_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        word_times.main(["--model", str(tmp_path), "--sentences", "1"])
    errors = capsys.readouterr().err
    assert "word_times: " in errors
    assert str(tmp_path) in errors
    assert "Traceback" not in errors


def test_a_count_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        word_times.main(["--sentences", "0"])
