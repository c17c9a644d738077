"""Checks of public requests before any stage is called; the errors name the field and the allowed
range.
"""

import math
import re
import secrets
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import replace

from cosyserve import spec
from cosyserve.errors import InvalidRequest
from cosyserve.v1 import profile_pb2, synthesis_pb2, voice_pb2
from services.orchestrator.requested_format import requested_format, require_resumable
from services.orchestrator.settings import LONGEST_IDLE_SECONDS
from services.orchestrator.speech.arriving_text import Waiting
from services.orchestrator.speech.conditioning import Prompting, PromptMode, Recording
from services.orchestrator.speech.utterance import Utterance

LARGEST_RECORDING = 10 * 1024 * 1024
_LONGEST_VOICE_ID = 128
_LONGEST_INSTRUCTION = 500
_LONGEST_TRANSCRIPT = 1000
_CONVERSION_MODES = (PromptMode.CROSS_LINGUAL, PromptMode.SFT)
_LONGEST_PAUSE_MILLISECONDS = 10_000
_SEED_BITS = 53
"""Of a seed that the server draws: JavaScript reads a number of JSON exactly up to there."""
_SENTENCE_CHARACTERS = 10, 20_000
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
    _require_value("setup.mode", setup.mode, modes.Mode.values())
    if setup.request.text:
        raise InvalidRequest("setup.request.text is set; in StreamingSynthesize text comes in messages after the setup")
    by_token = setup.mode == modes.MODE_TOKENS
    if by_token and setup.request.max_sentence_characters:
        raise InvalidRequest(
            "setup.request.max_sentence_characters is set; MODE_TOKENS speaks a sentence before its length is known, "
            "MODE_SENTENCES takes a limit"
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
    utterance = _streaming(setup.request)
    return replace(utterance, by_token=by_token, prompting=replace(utterance.prompting, by_token=by_token)), waiting


def conversion(request: synthesis_pb2.ConvertVoiceRequest) -> Utterance:
    """The utterance, without text, of a `ConvertVoice` request. Raises InvalidRequest."""
    return _in_hops(request, _form(request, _conversion_prompting(request), _streaming_profile(request)))


def _streaming(request: synthesis_pb2.SynthesizeRequest) -> Utterance:
    utterance = _in_hops(request, _shared(request, _streaming_profile(request)))
    return replace(
        utterance,
        retried_sentences=_retried(request.retried_sentences),
        least_euler_steps=_euler_steps("least_euler_steps", request.least_euler_steps, utterance.profile),
        euler_steps=_euler_steps("euler_steps", request.euler_steps, utterance.profile),
    )


def _euler_steps(field: str, value: int, profile: int) -> int:
    """0 where the caller leaves it to the server. Raises InvalidRequest."""
    if value and profile != profile_pb2.PROFILE_CONTINUOUS:
        raise InvalidRequest(
            f"{field} is {value}; {_name(profile)} always takes {spec.EULER_STEPS}, PROFILE_CONTINUOUS may take fewer"
        )
    return _in_range(field, value, spec.FEWEST_EULER_STEPS, spec.EULER_STEPS) if value else 0


def _streaming_profile(request: _StreamingRequest) -> int:
    profile = request.profile or profile_pb2.PROFILE_CONTINUOUS
    if profile not in _STREAMING_PROFILES:
        raise InvalidRequest(f"profile {_name(profile)} does not stream; allowed: PROFILE_CONTINUOUS, PROFILE_UPSTREAM")
    return profile


def _in_hops(request: _StreamingRequest, utterance: Utterance) -> Utterance:
    """Add the fields of a streamed response: its hops and where it resumes."""
    if request.start_sample < 0:
        raise InvalidRequest(f"start_sample is {request.start_sample}, it must not be negative")
    require_resumable(utterance.encoding, request.start_sample)
    if request.start_sample and not request.HasField("seed"):
        raise InvalidRequest(
            "start_sample resumes a lost request and needs its seed (header.seed of the first response)"
        )
    hops = request.hops
    first_hop = _in_range("hops.first_hop_tokens", hops.first_hop_tokens or 1, 1, 100)
    max_hop = _in_range("hops.max_hop_tokens", hops.max_hop_tokens or 100, 25, 400)
    _require_value("hops.growth", hops.growth, profile_pb2.HopSchedule.Growth.values())
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
    most = request.max_sentence_characters
    return replace(
        _form(request, _prompting(request), profile),
        text=request.text,
        language_code=request.language_code,
        retry=request.retry,
        allow_control_tokens=request.allow_control_tokens,
        pronunciations=dict(request.pronunciations),
        sentence_pause_milliseconds=_pause(request, profile),
        max_sentence_characters=_in_range("max_sentence_characters", most, *_SENTENCE_CHARACTERS) if most else 0,
    )


def _form(
    request: _StreamingRequest | synthesis_pb2.SynthesizeUnaryRequest, prompting: Prompting, profile: int
) -> Utterance:
    """The voice, speed and audio format of a request, without text and with default hops."""
    speed = request.speed or 1.0
    if not (math.isfinite(speed) and 0.5 <= speed <= 2.0):
        raise InvalidRequest(f"speed is {speed:g}, allowed are 0.5 to 2.0")
    encoding, rate = requested_format(request.audio_format)
    return Utterance(
        text="",
        prompting=prompting,
        language_code="",
        seed=request.seed if request.HasField("seed") else secrets.randbits(_SEED_BITS),
        speed=speed,
        profile=profile,
        first_hop_tokens=1,
        growth=profile_pb2.HopSchedule.GROWTH_UNSPECIFIED,
        max_hop_tokens=100,
        encoding=encoding,
        sample_rate=rate,
        trimmed=_trimmed(request.onset, profile),
    )


def _trimmed(onset: int, profile: int) -> bool:
    _require_value("onset", onset, synthesis_pb2.Onset.values())
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


def _require_value(field: str, number: int, values: Collection[int]) -> None:
    if number not in values:
        raise InvalidRequest(f"{field} is {number}, no value of that number exists")


def _in_range(field: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise InvalidRequest(f"{field} is {value}, allowed are {lowest} to {highest}")
    return value


def _name(profile: int) -> str:
    return profile_pb2.Profile.Name(profile) if profile in profile_pb2.Profile.values() else str(profile)  # type: ignore[arg-type]


def _prompting(request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest) -> Prompting:
    """Raises InvalidRequest."""
    mode = _mode(request.prompt_mode)
    instruction = request.instruction.strip()
    if request.instruction and not 1 <= len(instruction) <= _LONGEST_INSTRUCTION:
        raise InvalidRequest(
            f"instruction has {len(instruction)} characters besides the blanks around it, allowed are 1 to "
            f"{_LONGEST_INSTRUCTION}"
        )
    if instruction and mode not in (None, PromptMode.INSTRUCT):
        raise InvalidRequest(
            f"prompt_mode is PROMPT_MODE_{mode.name}, which takes no instruction; PROMPT_MODE_INSTRUCT does"
        )
    if mode is PromptMode.INSTRUCT and not instruction:
        raise InvalidRequest(
            f"prompt_mode is PROMPT_MODE_INSTRUCT, which needs an instruction of 1 to {_LONGEST_INSTRUCTION} characters"
        )
    return Prompting(request.voice, _recording(request), mode, instruction)


def _conversion_prompting(request: synthesis_pb2.ConvertVoiceRequest) -> Prompting:
    """The prompting of a `ConvertVoice` request. Raises InvalidRequest."""
    require_size("audio", request.audio)
    mode = _mode(request.prompt_mode)
    if mode not in (None, *_CONVERSION_MODES):
        allowed = ", ".join(f"PROMPT_MODE_{each.name}" for each in _CONVERSION_MODES)
        raise InvalidRequest(f"prompt_mode is PROMPT_MODE_{mode.name}; a conversion has {allowed}")
    return Prompting(request.voice, _recording(request), mode, allowed=_CONVERSION_MODES)


def require_size(field: str, audio: bytes) -> None:
    """Raises InvalidRequest for a sound file that is empty or too large."""
    if not 1 <= len(audio) <= LARGEST_RECORDING:
        raise InvalidRequest(f"{field} has {len(audio)} bytes, allowed are 1 to {LARGEST_RECORDING}")


def _mode(number: int) -> PromptMode | None:
    _require_value("prompt_mode", number, synthesis_pb2.PromptMode.values())
    return None if number == synthesis_pb2.PROMPT_MODE_UNSPECIFIED else PromptMode(number)


def _recording(
    request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest | synthesis_pb2.ConvertVoiceRequest,
) -> Recording | None:
    if len(request.voice) > _LONGEST_VOICE_ID:
        raise InvalidRequest(f"voice has {len(request.voice)} characters, allowed are at most {_LONGEST_VOICE_ID}")
    if not request.HasField("prompt"):
        return None
    if request.voice:
        raise InvalidRequest("voice and prompt are both set; a request speaks like one of them")
    prompt: voice_pb2.PromptRecording = request.prompt
    require_size("prompt.audio", prompt.audio)
    if len(prompt.transcript) > _LONGEST_TRANSCRIPT:
        raise InvalidRequest(
            f"prompt.transcript has {len(prompt.transcript)} characters, allowed are at most {_LONGEST_TRANSCRIPT}"
        )
    return Recording(prompt.audio, prompt.transcript, prompt.language_code, prompt.cut_prompt)
