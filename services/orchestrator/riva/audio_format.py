"""Encoding and rate of a request, as our own contract names them."""

from cosyserve.audio.compressed import FileFormat, check_rate
from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.spec import SAMPLE_RATE
from cosyserve.v1 import audio_pb2

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
