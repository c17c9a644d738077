"""The allowed rates and lengths of a recording: the limits that are checked before its samples are
read.
"""

from cosyserve.errors import InvalidRequest

SHORTEST_SECONDS, LONGEST_SECONDS = 1, 30
LOWEST_RATE, HIGHEST_RATE, RATE_STEP = 16_000, 192_000, 50
"""Sound cards use multiples of 50. For a rate without a common divisor with 24,000 the resampler's
filters would take gigabytes.
"""
MOST_CHANNELS = 2
MOST_BYTES = 10 * 1024 * 1024
"""Size of the uploaded file."""


def require_rate(rate: int) -> None:
    """Raise InvalidRequest for a sample rate outside 16,000 to 192,000 in steps of 50
    (compatibility specification section 2.5).
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE or rate % RATE_STEP:
        allowed = f"{LOWEST_RATE} to {HIGHEST_RATE} in steps of {RATE_STEP}"
        raise InvalidRequest(f"the recording has a sample rate of {rate}, allowed {allowed}")


def require_length(samples: int, rate: int) -> None:
    """Raise InvalidRequest unless `samples` at `rate` per second last 1 to 30 s."""
    if not SHORTEST_SECONDS * rate <= samples <= LONGEST_SECONDS * rate:
        length = f"{samples / rate:.2f} s ({samples} samples at {rate} a second)"
        raise InvalidRequest(f"the recording lasts {length}, allowed {SHORTEST_SECONDS} to {LONGEST_SECONDS} s")


def require_channels(channels: int) -> None:
    """Raise InvalidRequest unless there are one or two."""
    if not 1 <= channels <= MOST_CHANNELS:
        raise InvalidRequest(f"the recording has {channels} channels, allowed 1 to {MOST_CHANNELS}")
