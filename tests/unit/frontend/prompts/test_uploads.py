"""From an upload to a voice: file formats, the decoder process, trimming, and the pace of the
transcript.
"""

import asyncio
import io
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from cosyserve.errors import InternalFault, InvalidRequest, Overloaded
from services.frontend.prompts.recording_checks import require_plausible, syllables
from services.frontend.recordings import decoding
from services.frontend.recordings.decoding import decode, kind_of
from services.frontend.recordings.sound import MOST_BYTES, Sound, trim_silence
from services.frontend.recordings.wav_reader import read_wav
from tests.fuzz.upload_seeds import seeds, voiced
from tests.unit.frontend.models import until

FILES = seeds()


def encoded(samples: NDArray[np.float32], rate: int, kind: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize("name", sorted(FILES))
async def test_every_kind_of_file_holds_what_was_put_in(name: str) -> None:
    sound = await decode(FILES[name])
    expected = voiced(sound.rate) * (0.75 if name in ("pcm24.wav", "24.flac", "stereo.mp3") else 1.0)
    assert sound.samples.dtype == np.float32
    assert sound.samples.flags.writeable
    assert abs(len(sound.samples) - len(expected)) <= 0.1 * sound.rate
    length = min(len(expected), len(sound.samples))
    likeness = max(
        np.corrcoef(expected[: length - shift], sound.samples[shift:length])[0, 1]
        for shift in (0, 312, 528, 529, 1105, 1152)
        if shift < length
    )
    assert likeness > 0.9, name
    if name.endswith((".wav", ".flac")):
        np.testing.assert_allclose(sound.samples, expected, atol=0.02)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "audio has 0 bytes, allowed 1 to 10485760"),
        (b"RIFF" + bytes(10 * 1024 * 1024), "audio has 10485764 bytes, allowed"),
        (b"\x1aE\xdf\xa3webm", "audio begins with the bytes 1a 45 df a3, which is neither WAV, FLAC, MP3 nor Ogg"),
        (b"FORM\0\0\0\0AIFF", "neither WAV"),
        (b"\xff", "neither WAV"),
        (b"\xff\xf1AAC", "neither WAV"),
    ],
)
def test_files_of_other_kinds(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        kind_of(data)


LOW = 0.3 * np.sin(np.arange(8_000 * 2) / 3).astype(np.float32)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"fLaC" + bytes(200), "is not a complete flac file"),
        (b"OggS" + bytes(200), "is not a complete ogg file"),
        (b"ID3" + bytes(200), "is not a complete mp3 file|lasts 0.00 s"),
        (FILES["16.flac"][:200], "is not a complete flac file|lasts 0.0"),
        (encoded(LOW, 8_000, "MP3", "MPEG_LAYER_III"), "sample rate of 8000, allowed 16000"),
        (encoded(np.zeros((48_000, 3), np.float32), 24_000, "FLAC", "PCM_16"), "has 3 channels, allowed 1 to 2"),
        (
            encoded(np.zeros(31 * 16_000, np.float32), 16_000, "FLAC", "PCM_16"),
            "lasts more than 30 s, allowed 1 to 30 s",
        ),
        (encoded(np.zeros(3_600 * 16_000, np.float32), 16_000, "FLAC", "PCM_16"), "lasts more than 30 s"),
        (encoded(np.zeros(8_000, np.float32), 16_000, "OGG", "VORBIS"), "lasts 0.50 s"),
    ],
)
async def test_compressed_files_that_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        await decode(data)


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Another program in place of the decoder."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("kill -SEGV $$", InvalidRequest, "was ended by signal 11 on this flac file"),
        ("ulimit -t 1; while :; do :; done", InvalidRequest, "was ended by signal"),
        ("echo MemoryError >&2; exit 1", InvalidRequest, "needs more memory"),
        ("echo ModuleNotFoundError: soundfile >&2; exit 1", InternalFault, "decoder of flac files failed; the log"),
        ("exit 0", InternalFault, "decoder of flac files failed; the log"),
    ],
)
async def test_a_decoder_that_does_not_survive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, kind: type[Exception], said: str
) -> None:
    pretend(monkeypatch, tmp_path, script)
    with pytest.raises(kind, match=said):
        await decode(FILES["16.flac"])


def lives(folder: Path) -> bool:
    return Path(f"/proc/{(folder / 'pid').read_text().strip()}").exists()


async def test_a_decoder_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 100")
    monkeypatch.setattr(decoding, "_SECONDS", 0.3)
    with pytest.raises(Overloaded, match=r"was not decoded within 0\.3 s"):
        await decode(FILES["16.flac"])
    assert not lives(tmp_path)


async def test_hanging_up_ends_the_decoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 100")
    call = asyncio.create_task(decode(FILES["16.flac"]))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not lives(tmp_path)


def at(rate: int, *parts: NDArray[np.float32]) -> Sound:
    return Sound(np.concatenate(parts).astype(np.float32), rate)


@pytest.mark.parametrize("rate", [16_000, 22_050, 48_000])
def test_silence_at_the_ends_goes_but_for_a_margin(rate: int) -> None:
    hum = 0.0005 * np.sin(2 * np.pi * 50 * np.arange(2 * rate) / rate) + 0.1
    speech = np.tile(voiced(rate)[int(0.05 * rate) : int(1.1 * rate)], 2)
    short = trim_silence(at(rate, hum, speech + 0.1, hum))
    assert 0.28 <= (len(short.samples) - len(speech)) / rate <= 0.32
    power = [float(np.square(wave - 0.1).sum()) for wave in (short.samples, at(rate, speech + 0.1).samples)]
    assert abs(power[0] / power[1] - 1) < 0.05


def test_what_has_no_silence_stays_as_it_is() -> None:
    speech = voiced(24_000)[1_200:-1_200]
    assert np.array_equal(trim_silence(Sound(speech, 24_000)).samples, speech)


def test_too_little_is_left() -> None:
    with pytest.raises(InvalidRequest, match=r"too short: 0\.[67]\d s are left of 4\.\d\d s when the silence"):
        trim_silence(at(24_000, np.zeros(48_000), voiced(24_000)[4_800:14_400], np.zeros(48_000)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Hello there, this is me.", 8), ("今天天气很好", 6),
        ("twenty twenty-four", 5), ("これは本です", 6), ("안녕하세요", 5),
        ("Привет, мир", 3),
        ("BBC", 1), ("", 0), ("...!?", 0), ("你好 world", 3), ("مرحبا", 2), ("7 8 9", 3),
    ],
)  # fmt: skip
def test_syllables(text: str, count: float) -> None:
    assert abs(syllables(text) - count) <= 1


@pytest.mark.parametrize(
    ("text", "seconds", "fits"),
    [
        ("The quick brown fox jumps over the lazy dog.", 3.0, True),
        ("The quick brown fox jumps over the lazy dog.", 1.0, False),
        ("The quick brown fox jumps over the lazy dog.", 15.0, False),
        ("今天天气很好，我们出去走走吧", 3.0, True),
        ("今天天气很好，我们出去走走吧", 1.0, False),
        ("Yes.", 5.0, False),
        ("...", 2.0, False),
    ],
)
def test_a_transcript_has_to_fit_its_duration(text: str, seconds: float, fits: bool) -> None:
    if fits:
        require_plausible(text, seconds)
        return
    with pytest.raises(
        InvalidRequest, match=r"implausible: about \d+ syllables in .* a second, allowed 1 to 10; is it what"
    ):
        require_plausible(text, seconds)


@pytest.mark.parametrize(
    "chunk", [b"LIST\0\0\0\0", b"fmt \x10\0\0\0" + struct.pack("<HHIIHH", 1, 1, 24_000, 48_000, 2, 16)]
)
def test_ten_megabytes_of_chunks_without_data_are_refused_after_a_thousand(
    chunk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: the file has over 300,000."""
    data = b"RIFF\xff\xff\xff\xffWAVE" + chunk * (MOST_BYTES // len(chunk) - 2)
    began = time.thread_time()
    with pytest.raises(
        InvalidRequest, match="the WAV file has over 1000 chunks before its data, allowed are at most 1000"
    ):
        read_wav(data)
    assert time.thread_time() - began < 0.05


def test_a_file_with_as_many_chunks_as_allowed_is_read() -> None:
    file = FILES["pcm16.wav"]
    assert len(read_wav(file[:12] + b"LIST\0\0\0\0" * 998 + file[12:]).samples) == len(read_wav(file).samples)
