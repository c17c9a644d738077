"""The recording that a request brings along."""

from cosyserve.audio.encoding import Encoding
from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import voice_pb2
from services.orchestrator.foreign.sound_files import is_sound_file

_MOST_QUALITY = 40
_LOWEST_RATE, _HIGHEST_RATE = 16_000, 192_000
_SAMPLES = {
    riva_pb2.LINEAR_PCM: Encoding.LINEAR16,
    riva_pb2.MULAW: Encoding.MULAW,
    riva_pb2.ALAW: Encoding.ALAW,
}


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
    if not _LOWEST_RATE <= data.sample_rate_hz <= _HIGHEST_RATE:
        raise InvalidRequest(
            f"zero_shot_data.sample_rate_hz is {data.sample_rate_hz}, allowed are {_LOWEST_RATE} to {_HIGHEST_RATE}"
        )
    samples, rest = divmod(len(audio), encoding.bytes_per_sample)
    if rest:
        raise InvalidRequest(f"zero_shot_data.audio_prompt has {len(audio)} bytes, expected whole 16-bit samples")
    return wav_header(data.sample_rate_hz, samples, encoding) + audio + b"\0" * (len(audio) % 2)
