"""Results of a synthesis as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cosyserve.audio.encoding import AnyEncoding, encoding_named
from cosyserve.spec import EULER_STEPS
from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2, voice_pb2, warning_pb2

Profile = Literal["continuous", "upstream", "offline"]
Mode = Literal["sentences", "tokens"]
Growth = Literal["fixed", "exponential"]
Onset = Literal["trimmed", "natural"]
PromptMode = Literal["zero_shot", "cross_lingual", "instruct", "sft"]
STAGES = ("frontend", "llm_prefill", "llm_decode", "flow", "vocoder")


@dataclass(frozen=True)
class Prompt:
    """A recording to speak like in one request: the bytes of a sound file, its transcript, and the
    BCP-47 tag of that.
    """

    audio: bytes
    transcript: str = ""
    language_code: str = ""
    cut_prompt: bool = False
    """As VoiceDraft.cut_prompt of voice.proto."""


@dataclass(frozen=True)
class Chunk:
    """A piece of audio. start_sample: position of its first sample in the utterance, at the
    requested rate; of a compressed encoding: samples that the encoder had before (synthesis.proto).
    """

    audio: bytes
    index: int
    start_sample: int


@dataclass(frozen=True)
class WordTime:
    """A word as it is spoken; start, end: seconds from the beginning of the utterance. sentence:
    its number, from 0.
    """

    text: str
    start: float
    end: float
    sentence: int


@dataclass(frozen=True)
class TextWarning:
    """A part of the text that is not spoken as it is written."""

    kind: str
    """For programs: "unreadable", "unsupported_markup", "unusable_pronunciation", "more"
    (TextWarning.Kind of warning.proto).
    """
    message: str
    """For people; holds no part of the text."""
    left_out: tuple[str, ...]
    """What was left out or ignored: at most 8 parts of the text of at most 64 characters."""
    sentence: int
    """Number of the sentence that contains or follows it."""

    def __str__(self) -> str:
        named = ", ".join(repr(stretch) for stretch in self.left_out)
        return f"sentence {self.sentence}: {self.message}" + (f": {named}" if named else "")


@dataclass(frozen=True)
class MissingWordTimes:
    """Sentences whose words have no times, for one reason."""

    reason: str
    """For programs: "no_aligner", "language", "not_aligned", "busy" (MissingWordTimes.Reason of
    synthesis.proto).
    """
    sentences: int
    """How many they are."""
    first_sentence: int
    """Number of the first of them."""


@dataclass(frozen=True)
class Header:
    """The values in use, defaults filled in."""

    seed: int
    voice: str
    encoding: AnyEncoding
    sample_rate: int
    profile: str
    engine: str
    """Name of the engines in use; sent back to the server when a lost stream is resumed."""
    onset: str = "natural"
    """Whether the silence at both ends is removed ("trimmed") or sent ("natural")."""
    removed_start_milliseconds: float = 0.0
    """Silence that was removed at the start."""
    euler_steps: int = 10
    """Euler steps of the flow; fewer than ten only if the request allowed it."""


@dataclass(frozen=True)
class Summary:
    """Timings and counts of the request, measured at the server. `first_sound` and `total` map each
    of STAGES to milliseconds.
    """

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
    first_audible_milliseconds: float = 0.0
    """Until a player that starts with the first message plays the first sample above -40 dBFS; 0:
    there is none.
    """
    removed_start_milliseconds: float = 0.0
    removed_end_milliseconds: float = 0.0
    warnings: tuple[TextWarning, ...] = ()
    """Parts of the text that are not spoken as written."""
    euler_steps: int = 10
    browned_out: bool = False
    """Whether the server was near its limit when the request began."""
    missing_word_times: tuple[MissingWordTimes, ...] = ()
    """Sentences whose words have no times, by reason."""


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

    @property
    def sex(self) -> str:
        """By the label `sex` or `gender`; empty if it has neither."""
        return self.labels.get("sex") or self.labels.get("gender", "")


@dataclass(frozen=True)
class VoiceDetails(VoiceLine):
    """One voice; fields as in VoiceDetails of voice.proto."""

    description: str = ""
    transcript: str = ""
    provenance: str = ""
    tokens_before_sound: int = 0
    tokens_before_sound_if_cut: int = 0


def audio_format(encoding: AnyEncoding, sample_rate: int) -> audio_pb2.AudioFormat:
    """The audio format as a message."""
    return audio_pb2.AudioFormat(
        encoding=audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{encoding.name}"), sample_rate_hertz=sample_rate
    )


def encoding_of(message: audio_pb2.AudioFormat) -> AnyEncoding:
    """The encoding that the message names."""
    return encoding_named(audio_pb2.AudioEncoding.Name(message.encoding).removeprefix("AUDIO_ENCODING_"))


def read_header(message: synthesis_pb2.SynthesisHeader) -> Header:
    """The header's message as plain values."""
    return Header(
        seed=message.seed,
        voice=message.voice,
        encoding=encoding_of(message.audio_format),
        sample_rate=message.audio_format.sample_rate_hertz,
        profile=profile_pb2.Profile.Name(message.profile).removeprefix("PROFILE_").lower(),
        engine=message.engine,
        # A server of the previous release does not set it and sends every sample.
        onset="trimmed" if message.onset == synthesis_pb2.ONSET_TRIMMED else "natural",
        removed_start_milliseconds=message.removed_start_milliseconds,
        euler_steps=message.euler_steps or EULER_STEPS,
    )


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
        first_audible_milliseconds=message.first_audible_milliseconds,
        removed_start_milliseconds=message.removed_start_milliseconds,
        removed_end_milliseconds=message.removed_end_milliseconds,
        warnings=tuple(read_warning(warning) for warning in message.warnings),
        euler_steps=message.euler_steps or EULER_STEPS,
        browned_out=message.browned_out,
        missing_word_times=tuple(read_missing(missing) for missing in message.missing_word_times),
    )


def read_warning(message: warning_pb2.TextWarning) -> TextWarning:
    """A warning's message as plain values; a kind that this client does not know is its number."""
    kinds = warning_pb2.TextWarning.Kind
    kind = kinds.Name(message.kind) if message.kind in kinds.values() else str(message.kind)
    return TextWarning(kind.removeprefix("KIND_").lower(), message.message, tuple(message.left_out), message.sentence)


def read_missing(message: synthesis_pb2.MissingWordTimes) -> MissingWordTimes:
    """Its message as plain values; a reason that this client does not know is its number."""
    reasons = synthesis_pb2.MissingWordTimes.Reason
    reason = reasons.Name(message.reason) if message.reason in reasons.values() else str(message.reason)
    return MissingWordTimes(reason.removeprefix("REASON_").lower(), message.sentences, message.first_sentence)


def read_voice_line(message: voice_pb2.VoiceSummary) -> VoiceLine:
    """A line of the list as plain values."""
    return VoiceLine(**_line_fields(message))


def read_voice_details(message: voice_pb2.VoiceDetails) -> VoiceDetails:
    """The details of a voice as plain values."""
    return VoiceDetails(
        **_line_fields(message.summary),
        description=message.description,
        transcript=message.transcript,
        provenance=message.provenance,
        tokens_before_sound=message.tokens_before_sound,
        tokens_before_sound_if_cut=message.tokens_before_sound_if_cut,
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
