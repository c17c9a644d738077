"""The parameter `output_format`: codec, samples per second and bit rate in one name, such as
`mp3_44100_128`.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from cosyserve.audio.compressed import FileEncoder, FileFormat, Uncompressed, file_encoder
from cosyserve.audio.encoding import Encoding
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import InvalidRequest
from services.gateway.speech.request_model import Lenient

DEFAULT = "mp3_44100_128"
_RATES = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_LINEAR = [f"{codec}_{rate}" for codec in ("pcm", "wav") for rate in _RATES]
_LOSSY = ["mp3_22050_32", "mp3_24000_48", "mp3_44100", *(f"mp3_44100_{rate}" for rate in (32, 64, 96, 128, 192))]
_OPUS = [f"opus_48000_{rate}" for rate in (32, 64, 96, 128, 192)]
NAMES = (*_LOSSY, *_LINEAR, *_OPUS, "ulaw_8000", "alaw_8000")
"""Every value that is understood."""
_LAWS = {"ulaw": (Encoding.MULAW, "audio/basic"), "alaw": (Encoding.ALAW, "audio/x-alaw-basic")}
MEDIA_TYPES = ("audio/mpeg", "audio/pcm", "audio/wav", "audio/ogg", *(kind for _, kind in _LAWS.values()))
"""Of all answers."""
_PARTS = re.compile(r"([a-z0-9]+)_(\d+)(?:_(\d+))?")
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


@dataclass(frozen=True)
class OutputFormat:
    """codec: the first part of the name. sample_rate: in hertz. bit_rate: in bits per second; None:
    one at which speech is transparent.
    """

    codec: str
    sample_rate: int
    bit_rate: int | None

    @property
    def encoding(self) -> Encoding:
        """The encoding in which the speech service sends the samples."""
        return _LAWS[self.codec][0] if self.codec in _LAWS else Encoding.LINEAR16

    @property
    def media_type(self) -> str:
        """The value of Content-Type."""
        return _LAWS[self.codec][1] if self.codec in _LAWS else FileFormat(self.codec).media_type

    def encoder(self) -> FileEncoder:
        """What makes the format of samples in `encoding`."""
        if self.codec in _LAWS:
            return Uncompressed()
        return file_encoder(FileFormat(self.codec), self.sample_rate, self.bit_rate)


def read_output_format(name: str) -> OutputFormat:
    """Raises InvalidRequest with the names that are allowed."""
    parts = _PARTS.fullmatch(name)
    if name not in NAMES or parts is None:
        raise InvalidRequest(f"output_format is {name[:40]!r}; allowed are {', '.join(NAMES)}")
    codec, sample_rate, kilobits = parts.groups()
    return OutputFormat(codec, int(sample_rate), None if kilobits is None else 1000 * int(kilobits))


class VoiceSettings(Lenient):
    """`stability`, `similarity_boost`, `style` and `use_speaker_boost` are accepted and have no
    counterpart here. seed: for WebSockets, whose messages have no field of their own for it.
    """

    speed: float = 1.0
    seed: Seed | None = None


def options_of(
    settings: VoiceSettings, output_format: OutputFormat, language_code: str, seed: int | None
) -> SynthesisOptions:
    """Without the voice. seed: where the settings have none."""
    return SynthesisOptions(
        speed=settings.speed,
        seed=seed if settings.seed is None else settings.seed,
        language_code=language_code,
        encoding=output_format.encoding,
        sample_rate=output_format.sample_rate,
    )
