"""`python -m services.frontend.recordings.decoder_process KIND`: a file on standard input, its
sound on standard output.

Standard output: a line "ok RATE" and float32 little-endian samples, or "no" and a line that says
why. Limits that it sets for itself keep a file that makes the decoder run wild from taking more
than ten seconds of processor time and two gigabytes of addresses.
"""

import os
import resource
import sys

from cosyserve.errors import InvalidRequest

CPU_SECONDS = 10
_MEMORY_BYTES = 2 << 30


def main() -> int:
    """Decode; 0 whether or not the file was good."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Its threads, one for each processor of the host, would take the addresses that the decoder is
    # given.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Imported under the limits.
    from services.frontend.recordings.compressed_audio import read_compressed

    data = sys.stdin.buffer.read()
    out = sys.stdout.buffer
    try:
        sound = read_compressed(data, sys.argv[1])
    except InvalidRequest as error:
        out.write(f"no {error.message}".encode())
    else:
        out.write(f"ok {sound.rate}\n".encode() + sound.samples.astype("<f4").tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
