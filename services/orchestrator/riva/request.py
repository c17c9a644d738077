"""A request of Riva's contract as one of ours: its options, also those of our own contract beyond
Riva's fields (the custom configuration), the audio format, the custom dictionary
(`NVIDIA  ɛnˈvɪdiə,SQL  sequel`) and the recording that it may bring along.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cosyserve.audio.compressed import FileFormat, check_rate
from cosyserve.audio.encoding import Encoding
from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.spec import SAMPLE_RATE
from cosyserve.v1 import audio_pb2, voice_pb2
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.foreign.native_call import Context, KnownVoices, is_sound_file
from services.orchestrator.riva.voice_names import DEFAULT_LANGUAGE, is_chosen_here, mismatch, own_name, voice_of

_ENTRIES = re.compile(r",(?=[^,]*? {2})")
"""A comma before the next written form: others are part of how a word is said (IPA marks secondary
stress by one where it has no better sign).
"""
_IPA = re.compile("[\u0250-\u02ff\u00e6\u00f0\u014b\u03b8\u03b2]")
"""Letters and marks of the phonetic alphabet that are no letters of a respelling."""
_LOWEST_RATE, _HIGHEST_RATE = 8_000, 48_000
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
_ENCODINGS = {
    riva_pb2.ENCODING_UNSPECIFIED: audio_pb2.AUDIO_ENCODING_LINEAR16,
    riva_pb2.LINEAR_PCM: audio_pb2.AUDIO_ENCODING_LINEAR16,
    riva_pb2.FLAC: audio_pb2.AUDIO_ENCODING_FLAC,
    riva_pb2.MULAW: audio_pb2.AUDIO_ENCODING_MULAW,
    riva_pb2.OGGOPUS: audio_pb2.AUDIO_ENCODING_OGG_OPUS,
    riva_pb2.ALAW: audio_pb2.AUDIO_ENCODING_ALAW,
}
_MOST_QUALITY = 40
_LOWEST_PROMPT_RATE, _HIGHEST_PROMPT_RATE = 16_000, 192_000
_SAMPLES = {
    riva_pb2.LINEAR_PCM: Encoding.LINEAR16,
    riva_pb2.MULAW: Encoding.MULAW,
    riva_pb2.ALAW: Encoding.ALAW,
}
Setup = pb.StreamingSynthesizeSetup
_ONSETS = {"trimmed": pb.ONSET_TRIMMED, "natural": pb.ONSET_NATURAL}
_MODES = {"sentences": Setup.MODE_SENTENCES, "tokens": Setup.MODE_TOKENS}
_SWITCH = {"true": True, "false": False}
Read = Callable[[str, str], Any]


@dataclass(frozen=True)
class Translated:
    """setup: the options of the request, without its text. warnings: about what has no effect."""

    setup: pb.StreamingSynthesizeSetup
    warnings: list[str] = field(default_factory=list)


async def translated(request: riva.SynthesizeSpeechRequest, known: KnownVoices, context: Context) -> Translated:
    """Raises InvalidRequest, and what listing the voices raises."""
    setup = pb.StreamingSynthesizeSetup()
    warnings = configure(request.custom_configuration, setup)
    native = setup.request
    native.audio_format.CopyFrom(audio_format(request))
    native.pronunciations.update(pronunciations(request.custom_dictionary))
    # The default of clients, for a text in any language: the script of the text says more.
    if request.language_code != DEFAULT_LANGUAGE:
        native.language_code = request.language_code
    if request.HasField("zero_shot_data"):
        # Its clients name a voice, too, which is that of the model.
        native.prompt.CopyFrom(recording(request.zero_shot_data))
        return Translated(setup, warnings)
    native.voice = own_name(request.voice_name)
    if is_chosen_here(native.voice):
        native.voice = voice_of(native.voice, request.language_code, await known.seen(context))
    elif native.language_code:
        warning = mismatch(native.voice, native.language_code, await known.seen(context))
        warnings += [warning] if warning else []
    return Translated(setup, warnings)


def pronunciations(dictionary: str) -> dict[str, str]:
    """Written form to pronunciation, as our own contract takes them: IPA is marked; anything else
    is a respelling, or phonemes of the model between slashes. Raises InvalidRequest naming the
    entry.
    """
    entries: dict[str, str] = {}
    if not dictionary.strip():
        return entries
    for number, entry in enumerate(_ENTRIES.split(dictionary), 1):
        written, _, said = (part.strip() for part in entry.strip().partition("  "))
        if not (written and said):
            raise InvalidRequest(
                f"custom_dictionary, entry {number}: expected a written form, two blanks and its pronunciation, "
                "further entries behind a comma"
            )
        entries[written] = f"/ipa:{said.strip('/')}/" if _IPA.search(said) and not said.startswith("/") else said
    return entries


def audio_format(request: riva.SynthesizeSpeechRequest) -> audio_pb2.AudioFormat:
    """Raises InvalidRequest for an encoding or a rate that there is not."""
    encoding = _ENCODINGS.get(request.encoding)
    if encoding is None:
        allowed = ", ".join(f"{riva_pb2.AudioEncoding.Name(known)} ({known})" for known in _ENCODINGS if known)
        raise InvalidRequest(f"encoding is {request.encoding}; allowed are {allowed}")
    rate = request.sample_rate_hz or SAMPLE_RATE
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise InvalidRequest(f"sample_rate_hz is {rate}, allowed are {_LOWEST_RATE} to {_HIGHEST_RATE}")
    if request.encoding == riva_pb2.OGGOPUS:
        # Opus is decoded at 48 kHz, whatever the rate of its samples was; the default rate of
        # clients is 22050, which its encoders do not take.
        rate = next(known for known in _OPUS_RATES if known >= rate)
    elif request.encoding == riva_pb2.FLAC:
        try:
            check_rate(FileFormat.FLAC, rate)
        except InvalidRequest as error:
            raise InvalidRequest(f"sample_rate_hz: {error.message}") from error
    return audio_pb2.AudioFormat(encoding=encoding, sample_rate_hertz=rate)


def recording(data: riva.ZeroShotData) -> voice_pb2.PromptRecording:
    """The prompt as our own contract carries it, a file: samples without a header get one. Raises
    InvalidRequest.
    """
    if not data.audio_prompt:
        raise InvalidRequest("zero_shot_data.audio_prompt is empty, expected the bytes of a recording of 1 to 30 s")
    if not 0 <= data.quality <= _MOST_QUALITY:
        raise InvalidRequest(
            f"zero_shot_data.quality is {data.quality}, allowed are 1 to {_MOST_QUALITY}, or 0 for the default"
        )
    if data.encoding not in riva_pb2.AudioEncoding.values():
        raise InvalidRequest(f"zero_shot_data.encoding is {data.encoding}, no value of that number exists")
    return voice_pb2.PromptRecording(audio=_file(data), transcript=data.transcript)


def _file(data: riva.ZeroShotData) -> bytes:
    audio, encoding = data.audio_prompt, _SAMPLES.get(data.encoding)
    # Clients name the encoding of the samples also where a file has a header, which says more.
    if encoding is None or not data.sample_rate_hz or is_sound_file(audio):
        return audio
    if not _LOWEST_PROMPT_RATE <= data.sample_rate_hz <= _HIGHEST_PROMPT_RATE:
        raise InvalidRequest(
            f"zero_shot_data.sample_rate_hz is {data.sample_rate_hz}, allowed are {_LOWEST_PROMPT_RATE} to "
            f"{_HIGHEST_PROMPT_RATE}"
        )
    samples, rest = divmod(len(audio), encoding.bytes_per_sample)
    if rest:
        raise InvalidRequest(f"zero_shot_data.audio_prompt has {len(audio)} bytes, expected whole 16-bit samples")
    return wav_header(data.sample_rate_hz, samples, encoding) + audio + b"\0" * (len(audio) % 2)


def _whole(least: int, most: int) -> Read:
    def read(key: str, value: str) -> int:
        if not (value.isascii() and value.isdecimal() and least <= int(value[:20]) <= most and len(value) <= 20):
            raise _wrong(key, value, f"a whole number from {least} to {most}")
        return int(value)

    return read


def _factor(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0.5 <= number <= 2.0:
        raise _wrong(key, value, "0.5 to 2.0")
    return number


def _one_of(values: Mapping[str, Any]) -> Read:
    def read(key: str, value: str) -> Any:
        if value.lower() not in values:
            raise _wrong(key, value, " or ".join(values))
        return values[value.lower()]

    return read


def _text(key: str, value: str) -> str:
    return value


_OF_A_REQUEST: dict[str, Read] = {
    "seed": _whole(0, (1 << 64) - 1),
    "speed": _factor,
    "instruction": _text,
    "onset": _one_of(_ONSETS),
    "retry": _one_of(_SWITCH),
    "sentence_pause_milliseconds": _whole(0, 10_000),
    "max_sentence_characters": _whole(10, 20_000),
}
"""Fields of SynthesizeRequest."""
_OF_A_STREAM: dict[str, Read] = {
    "mode": _one_of(_MODES),
    "buffer_delay_milliseconds": _whole(50, 10_000),
    "idle_timeout_milliseconds": _whole(1_000, 180_000),
}
"""Fields of StreamingSynthesizeSetup."""


def configure(configuration: Mapping[str, str], setup: Setup) -> list[str]:
    """Set the options in `setup` and in its request; returns a warning for those that do not exist.
    Raises InvalidRequest for a value that an option cannot have.
    """
    unknown = []
    for key, value in sorted(configuration.items()):
        if key in _OF_A_REQUEST:
            setattr(setup.request, key, _OF_A_REQUEST[key](key, value.strip()))
        elif key in _OF_A_STREAM:
            setattr(setup, key, _OF_A_STREAM[key](key, value.strip()))
        else:
            unknown.append(key)
    if not unknown:
        return []
    known = ", ".join((*_OF_A_REQUEST, *_OF_A_STREAM))
    return [f"custom_configuration: {len(unknown)} unknown and without effect; known are {known}"]


def _wrong(key: str, value: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(f"custom_configuration[{key!r}] is {value!r}, allowed: {allowed}")
