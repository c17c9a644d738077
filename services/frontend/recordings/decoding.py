"""Decodes an upload: detects the file format and chooses the decoder."""

import asyncio
import contextlib
import logging
import sys

import numpy as np

from cosyserve.errors import InternalFault, InvalidRequest, Overloaded
from services.frontend.recordings.sound import MOST_BYTES, Sound
from services.frontend.recordings.wav_reader import read_wav

log = logging.getLogger(__name__)
_KINDS = {b"RIFF": "wav", b"fLaC": "flac", b"OggS": "ogg"}
_SECONDS = 30.0
"""The child limits its own processor time (`decoder_process`); this limit is for a machine that is
too busy to run it.
"""


def kind_of(data: bytes) -> str:
    """wav, flac, mp3 or ogg, by the first bytes. Raises InvalidRequest for anything else, for an
    empty file and for more than 10 MiB.
    """
    if not 1 <= len(data) <= MOST_BYTES:
        raise InvalidRequest(f"audio has {len(data)} bytes, allowed 1 to {MOST_BYTES}")
    if kind := _KINDS.get(data[:4]):
        return kind
    # An ID3 tag, or the eleven set bits of a frame header of layer III.
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return "mp3"
    raise InvalidRequest(f"audio begins with the bytes {data[:4].hex(' ')}, which is neither WAV, FLAC, MP3 nor Ogg")


async def decode(data: bytes) -> Sound:
    """Decode an uploaded file, channels averaged. Cancellation kills the child process.

    Raises InvalidRequest with the problem of the file, also when the decoder crashes on it;
    Overloaded when the machine is too busy to run it; InternalFault when the decoder itself fails.
    """
    kind = kind_of(data)
    if kind == "wav":
        return await asyncio.to_thread(read_wav, data)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.frontend.recordings.decoder_process",
        kind,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, complaint = await child.communicate(data)
    except TimeoutError as error:
        raise Overloaded(
            f"the {kind} file was not decoded within {_SECONDS:g} s: this machine is busy", retry_after=2.0
        ) from error
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    verdict, _, samples = out.partition(b"\n")
    if child.returncode == 0 and verdict.startswith(b"ok "):
        return Sound(np.frombuffer(samples, "<f4").astype(np.float32), int(verdict[3:]))
    if child.returncode == 0 and verdict.startswith(b"no "):
        raise InvalidRequest(out[3:].decode())
    if child.returncode is not None and child.returncode < 0:
        raise InvalidRequest(f"the decoder was ended by signal {-child.returncode} on this {kind} file")
    if b"MemoryError" in complaint:
        raise InvalidRequest(f"the {kind} file needs more memory than the decoder may use")
    lines = complaint.decode(errors="replace").strip().splitlines()
    log.error("the decoder of %s files failed: %s", kind, lines[-1] if lines else f"status {child.returncode}")
    raise InternalFault(f"the decoder of {kind} files failed; the log of this service has the details")
