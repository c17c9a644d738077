"""Encoders of whole files: any cutting gives the same bytes, and the first frame comes when
docs/http.md says."""

import io
import random
import re
from pathlib import Path

import av
import numpy as np
import pytest

from cosyserve.audio.compressed import FileEncoder, FileFormat, file_encoder
from cosyserve.errors import InvalidRequest

SAMPLES = 48_123
PCM = (np.sin(np.arange(SAMPLES) / 20) * 8_000).astype("<i2").tobytes()
CODED = [FileFormat.MP3, FileFormat.OPUS, FileFormat.AAC, FileFormat.FLAC]
PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")


def encoded(encoder: FileEncoder, pieces: list[bytes]) -> bytes:
    return b"".join([*map(encoder.encode, pieces), encoder.finish()])


def cut(seed: int, longest: int) -> list[bytes]:
    """Whole samples in pieces of random length, some of them empty."""
    dice, pieces, at = random.Random(seed), [], 0
    while at < len(PCM):
        until = at + 2 * dice.randint(0, longest)
        pieces.append(PCM[at:until])
        at = until
    return pieces


@pytest.mark.parametrize("file_format", FileFormat)
def test_the_bytes_do_not_depend_on_how_the_samples_are_cut(file_format: FileFormat) -> None:
    whole = encoded(file_encoder(file_format), [PCM])
    for seed, longest in enumerate((1, 100, 5_000)):
        pieces = cut(seed, longest) if longest > 1 else [PCM[at : at + 2] for at in range(0, len(PCM), 2)]
        assert encoded(file_encoder(file_format), pieces) == whole


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("file_format", CODED)
def test_each_rate_is_kept_or_refused(file_format: FileFormat, sample_rate: int) -> None:
    if file_format is FileFormat.OPUS and sample_rate in (22_050, 44_100):
        with pytest.raises(InvalidRequest, match=f"opus cannot hold {sample_rate} Hz; allowed are 8000, 12000"):
            file_encoder(file_format, sample_rate)
        return
    with av.open(io.BytesIO(encoded(file_encoder(file_format, sample_rate), [PCM]))) as container:
        frames = list(container.decode(audio=0))
    seconds = sum(frame.samples / frame.sample_rate for frame in frames)
    # A codec begins with its delay and ends with a whole frame: up to 1,536 samples more.
    assert SAMPLES / sample_rate - 1e-9 <= seconds <= (SAMPLES + 1_536) / sample_rate
    assert frames[0].sample_rate == (48_000 if file_format is FileFormat.OPUS else sample_rate)


@pytest.mark.parametrize("bit_rate", [None, 32_000, 128_000])
@pytest.mark.parametrize("sample_rate", [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
def test_a_player_learns_what_mp3_puts_in_front(sample_rate: int, bit_rate: int | None) -> None:
    quiet, loud = bytes(2 * 480), PCM[: 2 * 24_000]
    encoder = file_encoder(FileFormat.MP3, sample_rate, bit_rate)
    with av.open(io.BytesIO(encoded(encoder, [quiet + loud]))) as container:
        samples = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    begins = int(np.argmax(np.abs(samples) > 0.05))
    assert abs(begins - 480) < 16
    whole = 1_152 if sample_rate >= 32_000 else 576
    assert 24_480 <= len(samples) < 24_480 + whole


@pytest.mark.parametrize("file_format", CODED)
def test_the_first_frame_comes_after_the_delay_of_the_page(file_format: FileFormat) -> None:
    encoder = file_encoder(file_format)
    encoder.encode(b"")  # the header
    samples = 120
    while not encoder.encode(PCM[2 * (samples - 120) : 2 * samples]):
        samples += 120
    (milliseconds,) = re.findall(rf"^\| `{file_format}` \|.*\| (\d+) ms \|", PAGE, re.MULTILINE)
    assert samples / 24 == float(milliseconds)
