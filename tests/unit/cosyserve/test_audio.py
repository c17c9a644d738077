"""Output audio: companding, rates, any cutting of the input."""

import itertools
import math
import warnings
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.audio import g711
from cosyserve.audio.audibility import FirstAudible, samples_above
from cosyserve.audio.encoding import Encoding, OutputStream, encode, from_pcm, output_samples, to_pcm
from cosyserve.audio.wav import WavWriter, wav_header

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop

EVERY = np.arange(-32768, 32768).astype(np.int16)
CODES = bytes(range(256))
NOISE = (np.random.default_rng(7).standard_normal(9_001) * 9000).clip(-32768, 32767).astype("<i2").tobytes()
RATES = [8000, 11025, 16000, 22050, 37123, 44100, 48000]


def test_g711_equals_known_values_and_the_standard_library_on_every_sample() -> None:
    """mu-law is compared from zero on, and mirrors that below."""
    samples = np.array([0, -1, 32767, -32768, 1000, -1000], dtype=np.int16)
    assert g711.mulaw(samples).tolist() == [0xFF, 0x7F, 0x80, 0x00, 0xCE, 0x4E]
    assert g711.alaw(samples).tolist() == [0xD5, 0x55, 0xAA, 0x2A, 0xFA, 0x7A]
    assert g711.alaw(EVERY).tobytes() == audioop.lin2alaw(EVERY.tobytes(), 2)
    upper = EVERY[EVERY >= 0]
    assert g711.mulaw(upper).tobytes() == audioop.lin2ulaw(upper.tobytes(), 2)
    assert np.array_equal(g711.mulaw(~upper), g711.mulaw(upper) ^ 0x80)


@pytest.mark.parametrize(("compress", "expand"), [(g711.mulaw, audioop.ulaw2lin), (g711.alaw, audioop.alaw2lin)])
def test_every_code_expands_to_a_sample_of_its_own_interval(compress, expand) -> None:
    linear = np.frombuffer(expand(CODES, 2), dtype="<i2").astype(np.int16)
    again = compress(linear)
    assert {code for code in range(256) if again[code] != code} <= {0x7F}, (
        "only mu-law's second zero is another code for the same sample"
    )


def _whole(pcm: bytes, rate: int, encoding: Encoding = Encoding.LINEAR16, start: int = 0) -> bytes:
    stream = OutputStream(encoding, rate, start)
    return stream.feed(pcm) + stream.finish()


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(NOISE)), max_size=30),
    rate=st.sampled_from([*RATES, 24000]),
    encoding=st.sampled_from(Encoding),
)
def test_output_does_not_depend_on_the_cutting_of_the_input(cuts: list[int], rate: int, encoding: Encoding) -> None:
    stream, borders = OutputStream(encoding, rate), [0, *sorted(cuts), len(NOISE)]
    pieces = [stream.feed(NOISE[a:b]) for a, b in itertools.pairwise(borders)]
    assert b"".join([*pieces, stream.finish()]) == _whole(NOISE, rate, encoding)


@settings(max_examples=60, deadline=None)
@given(samples=st.integers(0, 4000), rate=st.integers(8000, 48000))
def test_length_follows_the_stated_rule(samples: int, rate: int) -> None:
    stream = OutputStream(sample_rate=rate)
    out = stream.feed(NOISE[: 2 * samples]) + stream.finish()
    assert len(out) // 2 == output_samples(samples, rate) == stream.position == math.floor(samples * rate / 24000 + 0.5)


def test_the_models_own_rate_passes_untouched_and_at_once() -> None:
    stream = OutputStream()
    assert (stream.feed(NOISE), stream.finish()) == (NOISE, b"")


@pytest.mark.parametrize("rate", RATES)
def test_resampling_keeps_a_tone_in_place(rate: int) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)
    out = from_pcm(_whole(to_pcm(tone), rate))
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(out)) / rate)
    middle = slice(len(out) // 4, -len(out) // 4)
    assert np.abs(out - expected)[middle].max() < 2 / 32768


@pytest.mark.parametrize("rate", [24_000, 8_000, 44_100])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_resumed_stream_is_the_end_of_the_whole_one(rate: int, encoding: Encoding) -> None:
    whole = _whole(NOISE, rate, encoding)
    for start in (0, 1, 1000, output_samples(9_001, rate)):
        assert _whole(NOISE, rate, encoding, start) == whole[start * encoding.bytes_per_sample :]


def test_misuse_is_named() -> None:
    stream = OutputStream()
    stream.feed(b"\0\0\0")
    with pytest.raises(ValueError, match="middle of a sample"):
        stream.finish()
    stream.feed(b"\0")
    stream.finish()
    with pytest.raises(ValueError, match="finished"):
        stream.feed(b"\0\0")


def test_pcm_is_rounded_clipped_and_read_back() -> None:
    samples = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.6 / 32768, -0.6 / 32768, 0.4 / 32768])
    assert np.frombuffer(to_pcm(samples), "<i2").tolist() == [0, 32767, -32768, 32767, -32768, 1, -1, 0]
    assert to_pcm(from_pcm(EVERY.astype("<i2").tobytes())) == EVERY.astype("<i2").tobytes()
    assert encode(NOISE, Encoding.LINEAR16) == NOISE


def test_wav_file_is_read_by_the_standard_library(tmp_path: Path) -> None:
    with WavWriter(tmp_path / "a.wav", 24_000) as file:
        file.write(NOISE[:1000])
        file.write(NOISE[1000:])
    with wave.open(str(tmp_path / "a.wav")) as read:
        assert (read.getnchannels(), read.getsampwidth(), read.getframerate(), read.getnframes()) == (
            1,
            2,
            24_000,
            9_001,
        )
        assert read.readframes(9_001) == NOISE


@pytest.mark.parametrize(("encoding", "tag"), [(Encoding.MULAW, 7), (Encoding.ALAW, 6)])
def test_companded_wav_names_its_law_and_is_padded_to_even_size(encoding: Encoding, tag: int, tmp_path: Path) -> None:
    with WavWriter(tmp_path / "a.wav", 8_000, encoding) as file:
        file.write(b"\x55" * 101)
    content = (tmp_path / "a.wav").read_bytes()
    assert content.startswith(wav_header(8_000, 101, encoding))
    assert int.from_bytes(content[20:22], "little") == tag
    assert int.from_bytes(content[4:8], "little") == len(content) - 8
    assert len(content) == len(wav_header(8_000, 101, encoding)) + 102


def test_header_of_unknown_length_has_the_same_size() -> None:
    for encoding in Encoding:
        assert len(wav_header(24_000, None, encoding)) == len(wav_header(24_000, 5, encoding))


def pcm(quiet: int, loud: int) -> bytes:
    return np.concatenate([np.full(quiet, 327), np.full(loud, 328)]).astype("<i2").tobytes()


def test_the_level_is_that_of_full_scale() -> None:
    """-40 dB of 32768 is 327.7; -50 dB is 103.6."""
    assert samples_above(np.array([0, 327, -327, 328, -328, 32_767, -32_768], np.int16), -40.0).tolist() == [3, 4, 5, 6]
    assert samples_above(np.array([103, 104, -103, -104], np.int16), -50.0).tolist() == [1, 3]
    assert samples_above(np.array([], np.int16), -40.0).size == 0


LINEAR, SILENT = Encoding.LINEAR16, pcm(2_400, 0)
BOTH_SIGNS = np.concatenate([np.full(80, 290), np.full(80, -290), np.full(9, -370)]).astype("<i2").tobytes()
PLAYED = {
    "the first byte and the silence in front": (LINEAR, 24_000, [(0.5, pcm(2_400, 10)), (0.9, pcm(0, 10))], 0.6),
    # The first message lasts from 0.5 to 0.6 s and is silent; the sound is 50 ms inside the second.
    "a later message that comes too soon": (LINEAR, 24_000, [(0.5, SILENT), (0.55, pcm(1_200, 10))], 0.65),
    "a later message in time": (LINEAR, 24_000, [(0.5, SILENT), (0.6, pcm(1_200, 10))], 0.65),
    "a later message that comes late": (LINEAR, 24_000, [(0.5, SILENT), (0.75, pcm(1_200, 10))], 0.8),
    "silence": (LINEAR, 24_000, [(0.1, pcm(24_000, 0))], None),
    # Their steps at this level are 16 to 32: so not at the level itself.
    **{f"{law} by what it stands for": (law, 8_000, [(1.0, BOTH_SIGNS)], 1.02) for law in ("mulaw", "alaw")},
}


@pytest.mark.parametrize(("encoding", "rate", "arrivals", "heard"), PLAYED.values(), ids=PLAYED)
def test_a_message_is_played_when_it_is_there_and_the_one_before_is_over(
    encoding: str, rate: int, arrivals: list[tuple[float, bytes]], heard: float | None
) -> None:
    player = FirstAudible(Encoding(encoding), rate)
    for now, audio in arrivals:
        player.arrived(now, encode(audio, Encoding(encoding)))
    assert player.seconds == (None if heard is None else pytest.approx(heard))
