"""What a compressed format may cost: limits, and a measurement with a recogniser that is given."""

import shutil
import subprocess

import numpy as np
import pytest

from tests.unit.quality.tones import tone
from tools.clients.decoding import decoded
from tools.quality.formats import FormatQuality, as_table, limits_exceeded
from tools.quality.words.alignment import WordErrors


def quality(name: str, *, wrong: int = 0, longer: float = 0.0, same: bool = False) -> FormatQuality:
    errors = None if name in ("wav", "flac") else WordErrors(words=400, substitutions=wrong)
    return FormatQuality(name, errors, (0.0, longer), same, 64.0)


def test_what_holds_is_silent() -> None:
    formats = [quality("pcm", wrong=8), quality("flac", same=True), quality("mp3", wrong=10, longer=0.09)]
    assert not limits_exceeded(formats)
    assert "8 of 400, 2.00%" in as_table(formats)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (quality("mp3", wrong=11), "word error rate 2.75%, pcm 2.00%"),
        (quality("mp3", longer=0.11), "mp3 decodes to +0.110 s from pcm, allowed 0 to 0.1 s"),
        (quality("opus", longer=0.001), "allowed 0 to 0 s"),
        (quality("opus", longer=-0.001), "opus decodes to -0.001 s"),
        (quality("flac", same=False), "does not decode to the samples"),
    ],
)
def test_each_limit_is_named(other: FormatQuality, words: str) -> None:
    (line,) = limits_exceeded([quality("pcm", wrong=8), other])
    assert words in line


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_independent_decoder_gives_back_the_samples() -> None:
    pcm = (tone(0.5) * 20_000).astype("<i2").tobytes()
    raw = ["-f", "s16le", "-ar", "24000", "-ac", "1", "-i", "pipe:0"]
    file = subprocess.run(
        ["ffmpeg", "-v", "error", *raw, "-f", "flac", "pipe:1"], input=pcm, capture_output=True, check=True
    ).stdout
    assert np.array_equal(np.frombuffer(decoded(file), "<i2"), np.frombuffer(pcm, "<i2"))
    with pytest.raises(ValueError, match="ffmpeg"):
        decoded(file[: len(file) // 2] + bytes(100))
