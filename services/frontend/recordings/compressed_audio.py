"""Decodes FLAC, MP3 and Ogg files with libsndfile. It runs in a child process
(`services.frontend.recordings.decoding`) because C code parses untrusted bytes.
"""

import io

import numpy as np
import soundfile

from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import (
    LONGEST_SECONDS,
    require_channels,
    require_length,
    require_rate,
)
from services.frontend.recordings.wav_reader import Sound

_BLOCK = 1 << 16
_FORMATS = {"flac": "FLAC", "mp3": "MP3", "ogg": "OGG"}


def read_compressed(data: bytes, kind: str) -> Sound:
    """Decode a whole file, channels averaged. kind: flac, mp3 or ogg.

    At most 30 s are decoded, whatever length the file declares. Raises InvalidRequest with the
    problem.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in (_FORMATS[kind], "MPEG" if kind == "mp3" else ""):
                raise InvalidRequest(f"the recording begins as {kind} and is {file.format}")
            require_channels(file.channels)
            require_rate(file.samplerate)
            blocks, count = [], 0
            while count <= LONGEST_SECONDS * file.samplerate:
                block = file.read(_BLOCK, dtype="float32", always_2d=True)
                if len(block) == 0:
                    break
                blocks.append(block.mean(axis=1, dtype=np.float32))
                count += len(block)
            if count > LONGEST_SECONDS * file.samplerate:
                raise InvalidRequest(
                    f"the recording lasts more than {LONGEST_SECONDS} s, allowed 1 to {LONGEST_SECONDS} s"
                )
            require_length(count, file.samplerate)
            return Sound(np.concatenate(blocks), file.samplerate)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        # libsndfile's own message; the whole one names the buffer in memory.
        reason = error.error_string if isinstance(error, soundfile.LibsndfileError) else str(error).split("\n", 1)[0]
        raise InvalidRequest(f"the recording is not a complete {kind} file: {reason}") from error
