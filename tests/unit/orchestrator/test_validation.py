"""Bad public requests, each with the text that the caller reads; and a bad setting."""

from typing import Any

import pytest

from cosyserve.errors import InvalidRequest
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2
from services.orchestrator import validation
from services.orchestrator.settings import OrchestratorSettings

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


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_refused(fields: dict[str, Any], message: str) -> None:
    request = synthesis_pb2.SynthesizeRequest(**{"text": "hello", **fields})
    with pytest.raises(InvalidRequest) as caught:
        validation.streaming(request, max_characters=100)
    assert caught.value.message.startswith(message)


def test_defaults_are_filled_in() -> None:
    utterance = validation.streaming(synthesis_pb2.SynthesizeRequest(text="hello"), max_characters=100)
    assert (utterance.speed, utterance.sample_rate, utterance.encoding) == (
        1.0,
        24_000,
        audio_pb2.AUDIO_ENCODING_LINEAR16,
    )
    assert utterance.profile == profile_pb2.PROFILE_CONTINUOUS
    assert (utterance.first_hop_tokens, utterance.max_hop_tokens, utterance.start_sample) == (1, 100, 0)


def test_seed_zero_is_a_seed() -> None:
    assert validation.streaming(synthesis_pb2.SynthesizeRequest(text="a", seed=0), 100).seed == 0
    assert validation.streaming(synthesis_pb2.SynthesizeRequest(text="a", seed=2**64 - 1), 100).seed == 2**64 - 1


def test_unary_is_offline() -> None:
    utterance = validation.unary(synthesis_pb2.SynthesizeUnaryRequest(text="你好", speed=1.5), 100)
    assert (utterance.profile, utterance.speed) == (profile_pb2.PROFILE_OFFLINE, 1.5)


def test_less_room_than_a_sentence_may_need_is_no_setting() -> None:
    stages = {"listen": "127.0.0.1:0", "frontend": ("a:1",), "llm": ("b:1",), "token2wav": ("c:1",)}
    OrchestratorSettings(**stages, max_waiting_characters=1_000)
    with pytest.raises(ValueError, match="MAX_WAITING_CHARACTERS is 999, allowed are at least 1000"):
        OrchestratorSettings(**stages, max_waiting_characters=999)
