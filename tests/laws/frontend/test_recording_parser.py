"""Laws of the recording decoders: any bytes give audio or a refusal with a reason, and written
audio is read back unchanged.
"""

import io
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cosyserve.audio import g711
from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import Sound
from services.frontend.recordings.wav_reader import read_wav
from tests.fuzz.upload_seeds import seeds, wav

RATES = st.sampled_from((16_000, 22_050, 24_000, 44_100, 48_000))
SEEDS = {name: data for name, data in seeds().items() if name.endswith(".wav")}
FORMATS = {"PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32, "FLOAT": 32, "DOUBLE": 64, "ULAW": 8, "ALAW": 8}


def noise(seconds: float, rate: int, channels: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-0.9, 0.9, (round(seconds * rate), channels)).astype(np.float32)


def read(data: bytes) -> Sound | str:
    """The audio, or the refusal; any other error fails the test."""
    try:
        sound = read_wav(data)
    except InvalidRequest as error:
        return error.message
    assert (sound.samples.dtype, sound.samples.ndim) == (np.float32, 1)
    assert sound.rate <= len(sound.samples) <= 30 * sound.rate
    return sound


@settings(max_examples=60, deadline=None)
@given(
    rate=RATES,
    channels=st.integers(1, 2),
    subtype=st.sampled_from(sorted(FORMATS)),
    extensible=st.booleans(),
    seed=st.integers(0, 9),
)
def test_what_another_program_writes_is_read_alike(
    rate: int, channels: int, subtype: str, extensible: bool, seed: int
) -> None:
    """libsndfile writes the file and reads it back: both decoders agree to the last bit of the
    encoding.
    """
    samples = noise(1.01, rate, channels, seed)
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAVEX" if extensible else "WAV", subtype=subtype)
    theirs, _ = soundfile.read(io.BytesIO(file.getvalue()), dtype="float32", always_2d=True)
    sound = read_wav(file.getvalue())
    assert sound.rate == rate
    np.testing.assert_allclose(sound.samples, theirs.mean(axis=1), atol=1e-6)


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=400),
    head=st.sampled_from((b"", b"RIFF", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEfmt ", b"RIFF\0\0\0\0WAVEdata")),
)
def test_any_bytes(data: bytes, head: bytes) -> None:
    assert isinstance(read(head + data), str)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(SEEDS)),
    changes=st.lists(st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4),
)
def test_a_damaged_header(name: str, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(SEEDS[name])
    for place, bytes_ in changes:
        data[place : place + len(bytes_)] = bytes_
    read(bytes(data))


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(SEEDS)), share=st.floats(0, 1))
def test_a_file_that_is_cut_off_is_never_read_as_more_than_there_is(name: str, share: float) -> None:
    whole = SEEDS[name]
    cut = whole[: int(share * len(whole))]
    if isinstance(read(cut), Sound):
        # Only a file without a declared length may be read.
        assert name == "streamed.wav" or len(cut) == len(whole)


@settings(max_examples=100, deadline=None)
@given(
    chunks=st.lists(
        st.tuples(st.sampled_from((b"LIST", b"bext", b"junk", b"fact")), st.binary(max_size=51)), max_size=5
    ),
    split=st.integers(0, 5),
)
def test_other_chunks_change_nothing(chunks: list[tuple[bytes, bytes]], split: int) -> None:
    plain = SEEDS["mulaw.wav"]
    form, data = plain[12:36], plain[36:]
    extra = [name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2) for name, body in chunks]
    body = b"".join(extra[:split]) + form + b"".join(extra[split:]) + data
    result = read_wav(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body)
    np.testing.assert_array_equal(result.samples, read_wav(plain).samples)


@given(seed=st.integers(0, 1000))
def test_g711_there_and_back(seed: int) -> None:
    """Within half of the interval that a byte represents; decoded bytes are exact."""
    samples = np.random.default_rng(seed).integers(-32768, 32768, 500).astype(np.int16)
    for code, values in ((g711.mulaw, g711.mulaw_values()), (g711.alaw, g711.alaw_values())):
        assert np.array_equal(values[code(values)], values)
        back = values[code(samples)].astype(np.int64)
        assert np.all(np.abs(back - samples) <= np.maximum(16, np.abs(samples.astype(np.int64)) / 16))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"RIFX", "does not begin with RIFF"),
        (wav(0x0055, 16, 24_000, b"\0" * 48_000), "is encoded as 0x0055, known are PCM, float, A-law, mu-law"),
        (wav(1, 12, 24_000, b""), "has PCM samples of 12 bits, allowed 8, 16, 24, 32"),
        (wav(1, 16, 24_000, b"", channels=3), "has 3 channels, allowed 1 to 2"),
        (wav(1, 16, 24_000, b"", channels=0), "has 0 channels"),
        (wav(1, 16, 8_000, b"\0" * 32_000), "sample rate of 8000, allowed 16000 to 192000 in steps of 50"),
        (wav(1, 16, 16_000, b"\0" * 16_000), r"lasts 0\.50 s \(8000 samples at 16000 a second\), allowed 1 to 30 s"),
        (wav(1, 8, 16_000, b"\0" * 480_001), "lasts 30.00 s .480001 samples"),
        (wav(1, 16, 24_000, b"\0" * 48_000)[:-2],
        "is cut off: its data at byte 36 has 48000 bytes, of which 47998 are there"),
        (b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd", "has its data at byte 12 before its format"),
        (b"RIFF\0\0\0\0WAVEfmt \4\0\0\0abcd", "format at byte 12 has 4 bytes"),
        (wav(1, 16, 24_000, b"")[:36], r"has no data \(36 bytes, a format\)"),
        (wav(1, 16, 24_000, b"").replace(struct.pack("<HH", 2, 16), struct.pack("<HH", 3, 16)),
        "samples take 3 bytes, expected 2"),
        (wav(0xFFFE, 16, 24_000, b"x" * 48_000), "extensible format at byte 12 has 16 bytes, expected at least 40"),
    ],
)  # fmt: skip
def test_every_refusal_says_what_and_where(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_wav(data)
