"""How long each phase of a service's start takes, as lines of its log that begin with "start:"."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)
_STATUS = Path("/proc/self/stat")
_START_TIME = 19
"""Place of `starttime` behind the name of the program (proc_pid_stat(5)), in clock ticks."""


@contextlib.contextmanager
def phase(what: str) -> Iterator[None]:
    """Log how long the block took, unless it raises."""
    began = time.monotonic()
    yield
    log.info("start: %s took %.1f s", what, time.monotonic() - began)


def process_age() -> float | None:
    """Seconds since this process was started; None where the system does not say."""
    try:
        fields = _STATUS.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        started = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (AttributeError, OSError, ValueError, IndexError):
        return None
