"""The dictionary, the configuration and the recording of a request of Riva's contract."""

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.riva.request import configure, pronunciations, recording


@pytest.mark.parametrize(
    ("dictionary", "read"),
    [
        ("", {}),
        (" ", {}),
        ("SQL  sequel", {"SQL": "sequel"}),
        ("New York  big apple,SQL  sequel", {"New York": "big apple", "SQL": "sequel"}),
        ("NVIDIA  ɛn.vɪ.diː.ʌ", {"NVIDIA": "/ipa:ɛn.vɪ.diː.ʌ/"}),
        ("Nike  /nˈIki/", {"Nike": "/nˈIki/"}),
        ("a  ˌe,ˈb,c  d", {"a": "/ipa:ˌe,ˈb/", "c": "d"}),
        ("重庆  虫庆, AI  ei ai", {"重庆": "虫庆", "AI": "ei ai"}),
    ],
)
def test_a_dictionary(dictionary: str, read: dict[str, str]) -> None:
    assert pronunciations(dictionary) == read


@pytest.mark.parametrize(
    ("dictionary", "entry"), [("SQL sequel", 1), ("SQL  ", 1), ("a  b,  c", 2), ("a  b,c  d,  e", 3)]
)
def test_a_dictionary_that_cannot_be_read(dictionary: str, entry: int) -> None:
    with pytest.raises(InvalidRequest, match=f"custom_dictionary, entry {entry}: expected a written form, two blanks"):
        pronunciations(dictionary)


def test_a_configuration() -> None:
    setup = pb.StreamingSynthesizeSetup()
    given = {
        "seed": str((1 << 64) - 1),
        "speed": " 1.25 ",
        "instruction": "Speak slowly.",
        "onset": "Natural",
        "retry": "true",
        "sentence_pause_milliseconds": "0",
        "max_sentence_characters": "80",
        "mode": "tokens",
        "buffer_delay_milliseconds": "100",
        "idle_timeout_milliseconds": "5000",
    }
    assert configure(given, setup) == []
    request = setup.request
    assert (request.seed, request.speed, request.instruction) == ((1 << 64) - 1, 1.25, "Speak slowly.")
    assert (request.onset, request.retry, request.max_sentence_characters) == (pb.ONSET_NATURAL, True, 80)
    assert request.HasField("sentence_pause_milliseconds")
    assert request.sentence_pause_milliseconds == 0
    assert (setup.mode, setup.buffer_delay_milliseconds) == (pb.StreamingSynthesizeSetup.MODE_TOKENS, 100)
    assert setup.idle_timeout_milliseconds == 5_000


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("seed", "-1", "a whole number from 0 to 18446744073709551615"),
        ("seed", str(1 << 64), "a whole number"),
        ("seed", "9" * 5_000, "a whole number"),
        ("seed", "", "a whole number"),
        ("seed", "７", "a whole number"),
        ("speed", "nan", "0.5 to 2.0"),
        ("speed", "2.01", "0.5 to 2.0"),
        ("speed", "fast", "0.5 to 2.0"),
        ("onset", "cut", "trimmed or natural"),
        ("retry", "1", "true or false"),
        ("mode", "words", "sentences or tokens"),
        ("buffer_delay_milliseconds", "20", "a whole number from 50 to 10000"),
    ],
)
def test_a_value_that_an_option_cannot_have(key: str, value: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"custom_configuration\['{key}'\] is .*, allowed: {allowed}"):
        configure({key: value}, pb.StreamingSynthesizeSetup())


def test_options_of_other_servers_have_no_effect() -> None:
    setup = pb.StreamingSynthesizeSetup()
    (warning,) = configure({"cfg_weight": "0.5", "pitch": "1"}, setup)
    assert warning.startswith("custom_configuration: 2 unknown and without effect; known are seed, speed,")
    assert setup == pb.StreamingSynthesizeSetup()


@pytest.mark.parametrize(
    ("name", "encoding", "audio"),
    [
        ("LINEAR_PCM", Encoding.LINEAR16, b"\1\0\2\0"),
        ("MULAW", Encoding.MULAW, b"\1\2"),
        ("ALAW", Encoding.ALAW, b"12"),
    ],
)
def test_samples_without_a_header_get_one(name: str, encoding: Encoding, audio: bytes) -> None:
    data = riva.ZeroShotData(
        audio_prompt=audio, encoding=riva_pb2.AudioEncoding.Value(name), sample_rate_hz=16_000, transcript="said"
    )
    prompt = recording(data)
    assert (prompt.audio, prompt.transcript) == (wav_header(16_000, 2, encoding) + audio, "said")


@pytest.mark.parametrize(
    "data",
    [
        riva.ZeroShotData(audio_prompt=b"RIFF....", encoding=riva_pb2.LINEAR_PCM, sample_rate_hz=22_050),
        riva.ZeroShotData(audio_prompt=b"\1\2", encoding=riva_pb2.LINEAR_PCM),
        riva.ZeroShotData(audio_prompt=b"fLaC", encoding=riva_pb2.FLAC, sample_rate_hz=16_000, quality=40),
    ],
)
def test_files_stay_as_they_are(data: riva.ZeroShotData) -> None:
    assert recording(data).audio == data.audio_prompt


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (riva.ZeroShotData(transcript="said"), "audio_prompt is empty"),
        (riva.ZeroShotData(audio_prompt=b"1", quality=-1), "quality is -1, allowed are 1 to 40"),
        (riva.ZeroShotData(audio_prompt=b"1", encoding=77), "encoding is 77"),
        (
            riva.ZeroShotData(audio_prompt=b"123", encoding=riva_pb2.LINEAR_PCM, sample_rate_hz=16_000),
            "audio_prompt has 3 bytes, expected whole 16-bit samples",
        ),
        (
            riva.ZeroShotData(audio_prompt=b"12", encoding=riva_pb2.MULAW, sample_rate_hz=8_000),
            "sample_rate_hz is 8000, allowed are 16000 to 192000",
        ),
    ],
)
def test_recordings_that_are_refused(data: riva.ZeroShotData, said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"zero_shot_data.{said}"):
        recording(data)
