"""The options of requests, by the names that `cosyserve.client` takes, and the messages built from
them.

Ranges and defaults as in synthesis.proto, which the server checks.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict, TypeVar

from google.protobuf.message import Message

from cosyserve.audio.encoding import AnyEncoding, Encoding
from cosyserve.client.types import Growth, Mode, Onset, Profile, Prompt, PromptMode, audio_format
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from cosyserve.v1 import profile_pb2, synthesis_pb2, voice_pb2

M = TypeVar("M", bound=Message)


class FormOptions(TypedDict, total=False):
    """Voice, speed and audio format."""

    voice: str
    prompt: Prompt | None
    """Recording to speak like, instead of a voice."""
    prompt_mode: PromptMode | None
    """Which parts of the voice condition the networks; None: chosen by instruction and voice."""
    seed: int | None
    speed: float
    sample_rate: int
    encoding: AnyEncoding
    """A `CompressedEncoding`: the server encodes, and a stream that is lost is not resumed."""
    onset: Onset | None
    """Whether the silence at both ends is removed; None: removed, except in profile upstream."""


class TextOptions(TypedDict, total=False):
    """How a text is read and spoken."""

    instruction: str
    """How to speak, in words."""
    language_code: str
    allow_control_tokens: bool
    pronunciations: Mapping[str, str] | None
    sentence_pause_milliseconds: int | None
    max_sentence_characters: int
    """A longer sentence is spoken in parts; 0: only the model limits its length."""
    retry: bool


class StreamOptions(TypedDict, total=False):
    """Where the audio is cut, and where it begins."""

    profile: Profile
    first_hop_tokens: int
    growth: Growth | None
    max_hop_tokens: int
    start_sample: int


class UnaryOptions(FormOptions, TextOptions, total=False):
    """Options of SynthesizeUnary."""


class ConversionOptions(FormOptions, StreamOptions, total=False):
    """Options of ConvertVoice."""


class SynthesisOptions(FormOptions, TextOptions, StreamOptions, total=False):
    """Options of Synthesize and StreamingSynthesize."""

    least_euler_steps: int
    """Fewest Euler steps, 5 to 10, that a server near its limit may take; 0: always ten."""
    euler_steps: int
    """Euler steps whatever the load, 5 to 10; 0: ten, or as `least_euler_steps` allows."""


def setup_of(
    options: SynthesisOptions, mode: Mode, buffer_delay_milliseconds: int, idle_timeout_milliseconds: int
) -> synthesis_pb2.StreamingSynthesizeSetup:
    """The first message of a StreamingSynthesize. Raises as `request_of`."""
    request = request_of(synthesis_pb2.SynthesizeRequest, options)
    with _unrepresentable():
        return synthesis_pb2.StreamingSynthesizeSetup(
            request=request,
            mode=synthesis_pb2.StreamingSynthesizeSetup.Mode.Value(f"MODE_{mode.upper()}"),
            buffer_delay_milliseconds=buffer_delay_milliseconds,
            idle_timeout_milliseconds=idle_timeout_milliseconds,
        )


def request_of(kind: type[M], options: Mapping[str, Any], **fields: Any) -> M:
    """A message of `kind` with these options. fields: its other fields. Raises InvalidRequest for
    values that no message can carry.
    """
    values = {name: value for name, value in options.items() if value is not None} | fields
    with _unrepresentable():
        values["audio_format"] = audio_format(
            values.pop("encoding", Encoding.LINEAR16), values.pop("sample_rate", SAMPLE_RATE)
        )
        values.setdefault("speed", 1.0)
        if "prompt" in values:
            values["prompt"] = voice_pb2.PromptRecording(**vars(values["prompt"]))
        if "prompt_mode" in values:
            values["prompt_mode"] = synthesis_pb2.PromptMode.Value(f"PROMPT_MODE_{values['prompt_mode'].upper()}")
        if "onset" in values:
            values["onset"] = synthesis_pb2.Onset.Value(f"ONSET_{values['onset'].upper()}")
        if "hops" in kind.DESCRIPTOR.fields_by_name:
            values["profile"] = profile_pb2.Profile.Value(f"PROFILE_{values.pop('profile', 'continuous').upper()}")
            values["hops"] = profile_pb2.HopSchedule(
                first_hop_tokens=values.pop("first_hop_tokens", 0),
                growth=profile_pb2.HopSchedule.Growth.Value(f"GROWTH_{values.pop('growth', 'unspecified').upper()}"),
                max_hop_tokens=values.pop("max_hop_tokens", 0),
            )
        return kind(**values)


@contextlib.contextmanager
def _unrepresentable() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"the request cannot be written as a message: {error}") from error
