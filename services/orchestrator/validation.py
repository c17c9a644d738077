"""Checks of public requests before any stage is called; the errors name the field and the allowed
range.
"""

import math
import re
import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from cosyserve import spec
from cosyserve.errors import InvalidRequest
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2
from services.orchestrator import validation
from services.orchestrator.settings import LONGEST_IDLE_SECONDS
from services.orchestrator.speech.conditioning import Prompting
from services.orchestrator.speech.utterance import Utterance
from services.orchestrator.text.caller_messages import Waiting

_LONGEST_PAUSE_MILLISECONDS = 10_000
_LONGEST_IDLE_BY_TOKEN_SECONDS = 30
"""The stages keep a sentence open for a minute without tokens, then end it as if the caller had
gone.
"""
_MOST_RETRIED = 20_000
_LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,8}")
_StreamingRequest = synthesis_pb2.SynthesizeRequest | synthesis_pb2.ConvertVoiceRequest
_STREAMING_PROFILES = (profile_pb2.PROFILE_CONTINUOUS, profile_pb2.PROFILE_UPSTREAM)


def streaming(request: synthesis_pb2.SynthesizeRequest, max_characters: int) -> Utterance:
    """The utterance of a `Synthesize` request; raises InvalidRequest."""
    _require_text(request.text, max_characters)
    return _streaming(request)


def arriving(setup: synthesis_pb2.StreamingSynthesizeSetup, idle_seconds: float) -> tuple[Utterance, Waiting]:
    """The utterance, without text, and the waiting times of a `StreamingSynthesize` setup. Raises
    InvalidRequest.

    idle_seconds: the setting of the server.
    """
    modes = synthesis_pb2.StreamingSynthesizeSetup
    if setup.mode not in modes.Mode.values():
        raise InvalidRequest(f"setup.mode is {setup.mode}, no value of that number exists")
    if setup.request.text:
        raise InvalidRequest("setup.request.text is set; in StreamingSynthesize text comes in messages after the setup")
    by_token = setup.mode == modes.MODE_TOKENS
    if by_token and setup.request.instruction:
        raise InvalidRequest(
            "setup.request.instruction is set; in MODE_TOKENS it would be spoken as part of the text, "
            "MODE_SENTENCES takes one"
        )
    delay, idle = setup.buffer_delay_milliseconds, setup.idle_timeout_milliseconds
    if delay and by_token:
        raise InvalidRequest(
            "setup.buffer_delay_milliseconds is set; MODE_TOKENS waits for no sentence, so there is nothing to delay"
        )
    longest_idle = 1000 * (_LONGEST_IDLE_BY_TOKEN_SECONDS if by_token else LONGEST_IDLE_SECONDS)
    patience = _in_range("setup.idle_timeout_milliseconds", idle, 1_000, longest_idle) / 1000 if idle else idle_seconds
    waiting = Waiting(
        delay_seconds=_in_range("setup.buffer_delay_milliseconds", delay, 50, 10_000) / 1000 if delay else None,
        idle_seconds=min(patience, longest_idle / 1000),
    )
    return replace(_streaming(setup.request), by_token=by_token), waiting


def conversion(request: synthesis_pb2.ConvertVoiceRequest) -> Utterance:
    """The utterance, without text, of a `ConvertVoice` request. Raises InvalidRequest."""
    return _in_hops(request, _form(request, validation.conversion(request), _streaming_profile(request)))


def _streaming(request: synthesis_pb2.SynthesizeRequest) -> Utterance:
    utterance = _shared(request, _streaming_profile(request))
    return replace(_in_hops(request, utterance), retried_sentences=_retried(request.retried_sentences))


def _streaming_profile(request: _StreamingRequest) -> int:
    profile = request.profile or profile_pb2.PROFILE_CONTINUOUS
    if profile not in _STREAMING_PROFILES:
        raise InvalidRequest(f"profile {_name(profile)} does not stream; allowed: PROFILE_CONTINUOUS, PROFILE_UPSTREAM")
    return profile


def _in_hops(request: _StreamingRequest, utterance: Utterance) -> Utterance:
    """Add the fields of a streamed response: its hops and where it resumes."""
    if request.start_sample < 0:
        raise InvalidRequest(f"start_sample is {request.start_sample}, it must not be negative")
    if request.start_sample and not request.HasField("seed"):
        raise InvalidRequest(
            "start_sample resumes a lost request and needs its seed (header.seed of the first response)"
        )
    hops = request.hops
    first_hop = _in_range("hops.first_hop_tokens", hops.first_hop_tokens or 1, 1, 100)
    max_hop = _in_range("hops.max_hop_tokens", hops.max_hop_tokens or 100, 25, 400)
    if hops.growth not in profile_pb2.HopSchedule.Growth.values():
        raise InvalidRequest(f"hops.growth is {hops.growth}, no value of that number exists")
    if utterance.profile == profile_pb2.PROFILE_UPSTREAM and utterance.speed != 1.0:
        raise InvalidRequest(
            f"speed is {utterance.speed:g}; PROFILE_UPSTREAM has only 1.0, PROFILE_CONTINUOUS has 0.5 to 2.0"
        )
    return replace(
        utterance,
        first_hop_tokens=first_hop,
        growth=hops.growth,
        max_hop_tokens=max_hop,
        start_sample=request.start_sample,
        engine=request.engine,
    )


def unary(request: synthesis_pb2.SynthesizeUnaryRequest, max_characters: int) -> Utterance:
    """The utterance of a `SynthesizeUnary` request; raises InvalidRequest."""
    _require_text(request.text, max_characters)
    return _shared(request, profile_pb2.PROFILE_OFFLINE)


def _require_text(text: str, max_characters: int) -> None:
    if len(text) > max_characters:
        raise InvalidRequest(f"text has {len(text)} characters, allowed are 1 to {max_characters}")
    # Only the frontend knows how a symbol is read and whether the voice can speak it.
    if not any(unicodedata.category(character)[0] in "LNS" or character in "%‰" for character in text):
        raise InvalidRequest(
            f"text has nothing to speak (no letter or digit); allowed are 1 to {max_characters} characters"
        )


def _shared(request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest, profile: int) -> Utterance:
    """The fields that all requests with a text share."""
    if request.language_code and not _LANGUAGE_TAG.fullmatch(request.language_code):
        raise InvalidRequest(f"language_code {request.language_code!r} is not a BCP-47 tag such as en-US or zh")
    return replace(
        _form(request, validation.prompting(request), profile),
        text=request.text,
        language_code=request.language_code,
        retry=request.retry,
        allow_control_tokens=request.allow_control_tokens,
        pronunciations=dict(request.pronunciations),
        sentence_pause_milliseconds=_pause(request, profile),
    )


def _form(
    request: _StreamingRequest | synthesis_pb2.SynthesizeUnaryRequest, prompting: Prompting, profile: int
) -> Utterance:
    """The voice, speed and audio format of a request, without text and with default hops."""
    speed = request.speed or 1.0
    if not (math.isfinite(speed) and 0.5 <= speed <= 2.0):
        raise InvalidRequest(f"speed is {speed:g}, allowed are 0.5 to 2.0")
    encoding = request.audio_format.encoding or audio_pb2.AUDIO_ENCODING_LINEAR16
    if encoding not in audio_pb2.AudioEncoding.values():
        raise InvalidRequest(f"audio_format.encoding is {encoding}, no value of that number exists")
    rate = request.audio_format.sample_rate_hertz or spec.SAMPLE_RATE
    return Utterance(
        text="",
        prompting=prompting,
        language_code="",
        seed=request.seed if request.HasField("seed") else secrets.randbits(63),
        speed=speed,
        profile=profile,
        first_hop_tokens=1,
        growth=profile_pb2.HopSchedule.GROWTH_UNSPECIFIED,
        max_hop_tokens=100,
        encoding=encoding,
        sample_rate=_in_range("audio_format.sample_rate_hertz", rate, 8_000, 48_000),
        trimmed=_trimmed(request.onset, profile),
    )


def _trimmed(onset: int, profile: int) -> bool:
    if onset not in synthesis_pb2.Onset.values():
        raise InvalidRequest(f"onset is {onset}, no value of that number exists")
    upstream = profile == profile_pb2.PROFILE_UPSTREAM
    if upstream and onset == synthesis_pb2.ONSET_TRIMMED:
        raise InvalidRequest(
            "onset is ONSET_TRIMMED; PROFILE_UPSTREAM has only ONSET_NATURAL, PROFILE_CONTINUOUS has both"
        )
    return onset != synthesis_pb2.ONSET_NATURAL and not upstream


def _pause(request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest, profile: int) -> int | None:
    if request.HasField("sentence_pause_milliseconds"):
        return _in_range(
            "sentence_pause_milliseconds", request.sentence_pause_milliseconds, 0, _LONGEST_PAUSE_MILLISECONDS
        )
    return 0 if profile == profile_pb2.PROFILE_UPSTREAM else None


def _retried(numbers: Sequence[int]) -> frozenset[int]:
    if len(numbers) > _MOST_RETRIED:
        raise InvalidRequest(f"retried_sentences has {len(numbers)} numbers, allowed are 0 to {_MOST_RETRIED}")
    if numbers and min(numbers) < 0:
        raise InvalidRequest(f"retried_sentences holds {min(numbers)}; sentences are numbered from 0")
    return frozenset(numbers)


def _in_range(field: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{field} is {value}, allowed are {lowest} to {highest}")
    return value


def _name(profile: int) -> str:
    return profile_pb2.Profile.Name(profile) if profile in profile_pb2.Profile.values() else str(profile)  # type: ignore[arg-type]
