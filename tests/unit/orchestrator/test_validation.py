"""Bad public requests, each with the text that the caller reads, in every call that takes what is
bad; and a bad setting.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cosyserve.audio.encoding import Encoding
from cosyserve.errors import InvalidRequest
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, voice_pb2
from services.orchestrator import validation
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.speech.conditioning import Prompting, PromptMode, Recording

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text has nothing to speak (no letter or digit); allowed are 1 to 100 characters"),
    ({"text": " ... !?"}, "text has nothing to speak"),
    ({"text": "a" * 101}, "text has 101 characters, allowed are 1 to 100"),
    ({"voice": "v" * 129}, "voice has 129 characters, allowed are at most 128"),
    ({"language_code": "not a tag"}, "language_code 'not a tag' is not a BCP-47 tag"),
    ({"speed": 0.49}, "speed is 0.49, allowed are 0.5 to 2.0"),
    ({"speed": -1.0}, "speed is -1, allowed are 0.5 to 2.0"),
    ({"speed": 2.01}, "speed is 2.01, allowed are 0.5 to 2.0"),
    ({"speed": float("nan")}, "speed is nan, allowed are 0.5 to 2.0"),
    (
        {"audio_format": {"sample_rate_hertz": 7_999}},
        "audio_format.sample_rate_hertz is 7999, allowed are 8000 to 48000",
    ),
    ({"audio_format": {"sample_rate_hertz": -1}}, "audio_format.sample_rate_hertz is -1, allowed are 8000 to 48000"),
    (
        {"audio_format": {"sample_rate_hertz": 48_001}},
        "audio_format.sample_rate_hertz is 48001, allowed are 8000 to 48000",
    ),
    (
        {"audio_format": {"encoding": audio_pb2.AUDIO_ENCODING_OGG_OPUS, "sample_rate_hertz": 44_100}},
        "audio_format.sample_rate_hertz: opus cannot hold 44100 Hz; allowed are 8000, 12000, 16000, 24000, 48000",
    ),
    (
        {"audio_format": {"encoding": audio_pb2.AUDIO_ENCODING_MP3}, "start_sample": 1, "seed": 1},
        "start_sample is 1; a file in AUDIO_ENCODING_MP3 cannot begin in the middle, LINEAR16, MULAW and ALAW can be",
    ),
    ({"audio_format": {"encoding": 99}}, "audio_format.encoding is 99, no value of that number exists"),
    (
        {"profile": profile_pb2.PROFILE_OFFLINE},
        "profile PROFILE_OFFLINE does not stream; allowed: PROFILE_CONTINUOUS, PROFILE_UPSTREAM",
    ),
    ({"profile": 42}, "profile 42 does not stream"),
    ({"profile": profile_pb2.PROFILE_UPSTREAM, "speed": 1.5}, "speed is 1.5; PROFILE_UPSTREAM has only 1.0"),
    ({"hops": {"first_hop_tokens": 101}}, "hops.first_hop_tokens is 101, allowed are 1 to 100"),
    ({"hops": {"first_hop_tokens": -1}}, "hops.first_hop_tokens is -1, allowed are 1 to 100"),
    ({"hops": {"max_hop_tokens": 24}}, "hops.max_hop_tokens is 24, allowed are 25 to 400"),
    ({"hops": {"growth": 9}}, "hops.growth is 9, no value of that number exists"),
    ({"start_sample": -1, "seed": 1}, "start_sample is -1, it must not be negative"),
    ({"start_sample": 1}, "start_sample resumes a lost request and needs its seed"),
]


def test_defaults_are_filled_in() -> None:
    utterance = validation.streaming(synthesis_pb2.SynthesizeRequest(text="hello"), max_characters=100)
    assert (utterance.speed, utterance.sample_rate, utterance.encoding) == (
        1.0,
        24_000,
        Encoding.LINEAR16,
    )
    assert utterance.profile == profile_pb2.PROFILE_CONTINUOUS
    assert (utterance.first_hop_tokens, utterance.max_hop_tokens, utterance.start_sample) == (1, 100, 0)


def test_a_drawn_seed_is_a_number_that_javascript_reads_exactly() -> None:
    seeds = {validation.streaming(synthesis_pb2.SynthesizeRequest(text="a"), 100).seed for _ in range(50)}
    assert len(seeds) == 50
    assert max(seeds) < 2**53


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_seed_zero_is_a_seed(seed: int) -> None:
    assert validation.streaming(synthesis_pb2.SynthesizeRequest(text="a", seed=seed), 100).seed == seed


def test_unary_is_offline() -> None:
    utterance = validation.unary(synthesis_pb2.SynthesizeUnaryRequest(text="你好", speed=1.5), 100)
    assert (utterance.profile, utterance.speed) == (profile_pb2.PROFILE_OFFLINE, 1.5)


LARGEST = 10_485_760
RECORDING = voice_pb2.PromptRecording(audio=b"RIFF", transcript="Hello.", language_code="en")
PROMPT: list[tuple[dict[str, Any], str]] = [
    ({"prompt_mode": 9}, "prompt_mode is 9, no value of that number exists"),
    ({"voice": "v" * 129}, "voice has 129 characters, allowed are at most 128"),
    ({"voice": "anna", "prompt": RECORDING}, "voice and prompt are both set; a request speaks like one of them"),
    (
        {"prompt": voice_pb2.PromptRecording(transcript="Hello.")},
        f"prompt.audio has 0 bytes, allowed are 1 to {LARGEST}",
    ),
    ({"prompt": {"audio": bytes(LARGEST + 1)}}, f"prompt.audio has {LARGEST + 1} bytes, allowed are 1 to {LARGEST}"),
    (
        {"prompt": {"audio": b"x", "transcript": "a" * 1001}},
        "prompt.transcript has 1001 characters, allowed are at most 1000",
    ),
]
INSTRUCTION: list[tuple[dict[str, Any], str]] = [
    (
        {"instruction": "slowly", "prompt_mode": 1},
        "prompt_mode is PROMPT_MODE_ZERO_SHOT, which takes no instruction",
    ),
    (
        {"instruction": "slowly", "prompt_mode": 2},
        "prompt_mode is PROMPT_MODE_CROSS_LINGUAL, which takes no instruction",
    ),
    (
        {"instruction": "slowly", "prompt_mode": 4},
        "prompt_mode is PROMPT_MODE_SFT, which takes no instruction; PROMPT_MODE_INSTRUCT does",
    ),
    ({"prompt_mode": 3}, "prompt_mode is PROMPT_MODE_INSTRUCT, which needs an instruction of 1 to 500 characters"),
    ({"instruction": " \n"}, "instruction has 0 characters besides the blanks around it, allowed are 1 to 500"),
    ({"instruction": "a" * 501}, "instruction has 501 characters besides the blanks around it, allowed are 1 to 500"),
]


CONVERSION: list[tuple[dict[str, Any], str]] = [
    *PROMPT,
    ({"audio": b""}, f"audio has 0 bytes, allowed are 1 to {LARGEST}"),
    ({"audio": bytes(LARGEST + 1)}, f"audio has {LARGEST + 1} bytes, allowed are 1 to {LARGEST}"),
    (
        {"prompt_mode": 1},
        "prompt_mode is PROMPT_MODE_ZERO_SHOT; a conversion has PROMPT_MODE_CROSS_LINGUAL, PROMPT_MODE_SFT",
    ),
    (
        {"prompt_mode": 3},
        "prompt_mode is PROMPT_MODE_INSTRUCT; a conversion has PROMPT_MODE_CROSS_LINGUAL, PROMPT_MODE_SFT",
    ),
    ({"speed": 2.1}, "speed is 2.1, allowed are 0.5 to 2.0"),
    ({"speed": 1.5, "profile": profile_pb2.PROFILE_UPSTREAM}, "speed is 1.5; PROFILE_UPSTREAM has only 1.0"),
    ({"profile": profile_pb2.PROFILE_OFFLINE}, "profile PROFILE_OFFLINE does not stream"),
    ({"start_sample": 5}, "start_sample resumes a lost request and needs its seed"),
    ({"hops": {"first_hop_tokens": 101}}, "hops.first_hop_tokens is 101, allowed are 1 to 100"),
    ({"audio_format": {"sample_rate_hertz": 1}}, "audio_format.sample_rate_hertz is 1, allowed are 8000 to 48000"),
]
Check = Callable[[dict[str, Any]], Any]


def check_streaming(fields: dict[str, Any]) -> None:
    validation.streaming(synthesis_pb2.SynthesizeRequest(**{"text": "hello", **fields}), 100)


def check_unary(fields: dict[str, Any]) -> None:
    validation.unary(synthesis_pb2.SynthesizeUnaryRequest(text="a", **fields), 100)


def check_arriving(fields: dict[str, Any], mode: Any = 0) -> None:
    validation.arriving(synthesis_pb2.StreamingSynthesizeSetup(mode=mode, request=fields), 30.0)


def check_conversion(fields: dict[str, Any]) -> None:
    validation.conversion(synthesis_pb2.ConvertVoiceRequest(**{"audio": b"RIFF", **fields}))


@pytest.mark.parametrize(
    ("check", "fields", "message"),
    [
        *((check_streaming, *row) for row in REFUSED),
        *((check, *row) for check in (check_streaming, check_unary, check_arriving) for row in PROMPT + INSTRUCTION),
        *((check_conversion, *row) for row in CONVERSION),
        *(
            (check, {"max_sentence_characters": value}, f"max_sentence_characters is {value}, allowed are 10 to 20000")
            for check in (check_streaming, check_unary, check_arriving)
            for value in (-1, 9, 20_001)
        ),
        (
            partial(check_arriving, mode=synthesis_pb2.StreamingSynthesizeSetup.MODE_TOKENS),
            {"max_sentence_characters": 100},
            "setup.request.max_sentence_characters is set; MODE_TOKENS",
        ),
    ],
)
def test_refused(check: Check, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{re.escape(message)}"):
        check(fields)


@pytest.mark.parametrize("value", [0, 10, 20_000])
def test_a_limit_of_sentence_length_is_read(value: int) -> None:
    request = synthesis_pb2.SynthesizeRequest(text="a", max_sentence_characters=value)
    unary = synthesis_pb2.SynthesizeUnaryRequest(text="a", max_sentence_characters=value)
    for utterance in (validation.streaming(request, 100), validation.unary(unary, 100)):
        assert utterance.max_sentence_characters == value


def test_what_is_asked_for_is_read() -> None:
    assert validation.streaming(
        synthesis_pb2.SynthesizeRequest(text="a", prompt=RECORDING, instruction="  Speak slowly. "), 100
    ).prompting == Prompting(recording=Recording(b"RIFF", "Hello.", "en"), instruction="Speak slowly.")
    assert validation.unary(
        synthesis_pb2.SynthesizeUnaryRequest(text="a", voice="anna", instruction="a" * 500, prompt_mode=3), 100
    ).prompting == Prompting("anna", mode=PromptMode.INSTRUCT, instruction="a" * 500)
    conversion = synthesis_pb2.ConvertVoiceRequest(
        audio=bytes(LARGEST), voice="anna", prompt_mode=4, seed=0, speed=1.5, start_sample=7
    )
    utterance = validation.conversion(conversion)
    assert utterance.prompting == Prompting(
        "anna", mode=PromptMode.SFT, allowed=(PromptMode.CROSS_LINGUAL, PromptMode.SFT)
    )
    assert (utterance.text, utterance.seed, utterance.speed, utterance.start_sample) == ("", 0, 1.5, 7)


def test_what_is_no_room_is_no_setting() -> None:
    stages = {"listen": "127.0.0.1:0", "frontend": ("a:1",), "llm": ("b:1",), "token2wav": ("c:1",)}
    OrchestratorSettings(**stages, max_waiting_characters=1_000, voices_cache_bytes=0)
    with pytest.raises(ValueError, match="MAX_WAITING_CHARACTERS is 999, allowed are at least 1000"):
        OrchestratorSettings(**stages, max_waiting_characters=999)
    with pytest.raises(ValueError, match="VOICES_CACHE_BYTES must not be negative, got -1"):
        OrchestratorSettings(**stages, voices_cache_bytes=-1)
