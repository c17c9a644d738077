"""`python -m services.frontend.recordings.decoder_process KIND`: decodes a file from standard input
to standard output.

Standard output: a line "ok RATE" and float32 little-endian samples, or "no" and a line with the
reason. The process limits itself to ten seconds of processor time and two gigabytes of address
space, for files that make the decoder run away.
"""

import os
import resource
import sys

from cosyserve.errors import InvalidRequest

CPU_SECONDS = 10
_MEMORY_BYTES = 2 << 30


def main() -> int:
    """Decode; returns 0 whether or not the file was valid."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # One thread per processor of the host would exhaust the address space of the decoder.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Imported after the limits are set.
    from services.frontend.recordings.compressed_audio import read_compressed

    try:
        sound = read_compressed(sys.stdin.buffer.read(), sys.argv[1])
        reply = f"ok {sound.rate}\n".encode() + sound.samples.astype("<f4").tobytes()
    except InvalidRequest as error:
        reply = f"no {error.message}".encode()
    sys.stdout.buffer.write(reply)
    return 0


if __name__ == "__main__":
    sys.exit(main())
