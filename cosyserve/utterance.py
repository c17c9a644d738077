"""What a caller hears and learns of one synthesis, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cosyserve.audio import Encoding
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, voice_pb2

Profile = Literal["continuous", "upstream", "offline"]
Mode = Literal["sentences", "tokens"]
Growth = Literal["fixed", "exponential"]
PromptMode = Literal["zero_shot", "cross_lingual", "instruct", "sft"]
STAGES = ("frontend", "llm_prefill", "llm_decode", "flow", "vocoder")


@dataclass(frozen=True)
class Prompt:
    """A recording to speak like in one request: the bytes of a sound file, what is said in it, and the BCP-47 tag of that."""

    audio: bytes
    transcript: str = ""
    language_code: str = ""


@dataclass(frozen=True)
class Chunk:
    """A piece of audio. start_sample: place of its first sample in the utterance, at the requested rate."""

    audio: bytes
    index: int
    start_sample: int


@dataclass(frozen=True)
class WordTime:
    """A word as it is spoken; start, end: seconds from the beginning of the utterance. sentence: its number, from 0."""

    text: str
    start: float
    end: float
    sentence: int


@dataclass(frozen=True)
class Header:
    """What the request came down to, defaults filled in."""

    seed: int
    voice: str
    encoding: Encoding
    sample_rate: int
    profile: str
    engine: str
    """Name of the engines that speak; goes back to the server when a lost stream is taken up again."""


@dataclass(frozen=True)
class Summary:
    """What the request cost, measured at the server. `first_sound` and `total` map each of STAGES to milliseconds."""

    audio_seconds: float
    first_sound_milliseconds: float
    real_time_factor: float
    sentences: int
    speech_tokens: int
    resumptions: int
    cancelled: bool
    """The caller stopped a streaming synthesis before its end."""
    first_sound: dict[str, float]
    total: dict[str, float]


@dataclass(frozen=True)
class VoiceLine:
    """One voice of the list; fields as in VoiceSummary of voice.proto."""

    id: str
    content_hash: str
    prompt_seconds: float
    is_default: bool
    is_preset: bool = False
    display_name: str = ""
    language_code: str = ""
    created: str = ""
    """RFC 3339; empty for a preset."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class VoiceDetails(VoiceLine):
    """One voice; fields as in VoiceDetails of voice.proto."""

    description: str = ""
    transcript: str = ""
    provenance: str = ""


def audio_format(encoding: Encoding, sample_rate: int) -> audio_pb2.AudioFormat:
    """The wanted form of the audio as a message."""
    return audio_pb2.AudioFormat(encoding=audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{encoding.name}"), sample_rate_hertz=sample_rate)


def read_header(message: synthesis_pb2.SynthesisHeader) -> Header:
    """The header's message as plain values."""
    encoding = audio_pb2.AudioEncoding.Name(message.audio_format.encoding).removeprefix("AUDIO_ENCODING_")
    profile = profile_pb2.Profile.Name(message.profile).removeprefix("PROFILE_").lower()
    return Header(message.seed, message.voice, Encoding[encoding], message.audio_format.sample_rate_hertz, profile, message.engine)


def read_summary(message: synthesis_pb2.SynthesisSummary) -> Summary:
    """The summary's message as plain values."""
    return Summary(
        audio_seconds=message.audio_seconds,
        first_sound_milliseconds=message.first_sound_milliseconds,
        real_time_factor=message.real_time_factor,
        sentences=message.sentences,
        speech_tokens=message.speech_tokens,
        resumptions=message.resumptions,
        cancelled=message.cancelled,
        first_sound={stage: getattr(message.first_sound, stage) for stage in STAGES},
        total={stage: getattr(message.total, stage) for stage in STAGES},
    )


def read_voice_line(message: voice_pb2.VoiceSummary) -> VoiceLine:
    """A line of the list as plain values."""
    return VoiceLine(**_line_fields(message))


def read_voice_details(message: voice_pb2.VoiceDetails) -> VoiceDetails:
    """What is known of a voice as plain values."""
    return VoiceDetails(
        **_line_fields(message.summary),
        description=message.description,
        transcript=message.transcript,
        provenance=message.provenance,
    )


def _line_fields(message: voice_pb2.VoiceSummary) -> dict[str, Any]:
    return {
        "id": message.id,
        "content_hash": message.content_hash,
        "prompt_seconds": message.prompt_seconds,
        "is_default": message.is_default,
        "is_preset": message.is_preset,
        "display_name": message.display_name,
        "language_code": message.language_code,
        "created": message.create_time.ToJsonString() if message.HasField("create_time") else "",
        "labels": dict(message.labels),
    }
