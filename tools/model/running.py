"""How a command of this package ends: 0 done, 1 it failed and one line on standard error says why, 2 wrong usage."""

import errno
import sys
from collections.abc import Callable

from cosyserve.errors import ModelError, SettingsError
from cosyserve.interrupts import heeded

_INTERRUPTED = 130


def run(main: Callable[[], int]) -> int:
    """Exit status of `main`."""
    try:
        with heeded():
            return main()
    except (ModelError, SettingsError, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        print(f"cosyserve: {error}{'; make room and run it again: what is done is kept' if full else ''}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cosyserve: stopped; the next run goes on from here", file=sys.stderr)
        return _INTERRUPTED
