"""The audio format that a request asks for, checked before any stage is called."""

from cosyserve import spec
from cosyserve.audio.compressed import FileFormat, check_rate, is_installed
from cosyserve.audio.encoding import AnyEncoding, Encoding, encoding_named
from cosyserve.errors import FailedPrecondition, InvalidRequest
from cosyserve.v1 import audio_pb2

_LOWEST_RATE, _HIGHEST_RATE = 8_000, 48_000


def requested_format(message: audio_pb2.AudioFormat) -> tuple[AnyEncoding, int]:
    """The encoding, and the rate in hertz. Raises InvalidRequest, and FailedPrecondition for a
    compressed encoding where no encoder is installed.
    """
    number = message.encoding or audio_pb2.AUDIO_ENCODING_LINEAR16
    if number not in audio_pb2.AudioEncoding.values():
        raise InvalidRequest(f"audio_format.encoding is {number}, no value of that number exists")
    encoding = encoding_named(audio_pb2.AudioEncoding.Name(number).removeprefix("AUDIO_ENCODING_"))
    rate = message.sample_rate_hertz or spec.SAMPLE_RATE
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise InvalidRequest(f"audio_format.sample_rate_hertz is {rate}, allowed are {_LOWEST_RATE} to {_HIGHEST_RATE}")
    if isinstance(encoding, Encoding):
        return encoding, rate
    try:
        check_rate(FileFormat(encoding.value), rate)
    except InvalidRequest as error:
        raise InvalidRequest(f"audio_format.sample_rate_hertz: {error.message}") from error
    if not is_installed():
        raise FailedPrecondition(
            f"audio_format.encoding is AUDIO_ENCODING_{encoding.name}, and this server has no encoder: PyAV is missing "
            "(extra orchestrator of cosyserve-server); LINEAR16, MULAW and ALAW need none"
        )
    return encoding, rate


def require_resumable(encoding: AnyEncoding, start_sample: int) -> None:
    """Raises InvalidRequest for a compressed file that would begin in the middle."""
    if start_sample and not isinstance(encoding, Encoding):
        raise InvalidRequest(
            f"start_sample is {start_sample}; a file in AUDIO_ENCODING_{encoding.name} cannot begin in the middle, "
            "LINEAR16, MULAW and ALAW can be resumed"
        )
