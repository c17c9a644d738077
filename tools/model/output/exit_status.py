"""How a command of this package ends: 0 done, 1 it failed, 2 wrong usage.

One line on standard error says why; with --json one object on standard output.
"""

import errno
import sys
from collections.abc import Callable

from cosyserve.commands.terminal.output import FAILED, WRONG_USAGE, WrongUsage, interrupts_enabled, report_failure

from cosyserve.errors import ModelError, SettingsError

_INTERRUPTED = 130


def run(main: Callable[[], int]) -> int:
    """Exit status of `main`."""
    as_json = "--json" in sys.argv[1:]
    try:
        with interrupts_enabled():
            return main()
    except WrongUsage as error:
        if not as_json:
            sys.stderr.write(error.usage)
        return report_failure("", str(error), WRONG_USAGE, as_json=as_json)
    except (ModelError, SettingsError, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        return report_failure(
            "",
            f"{error}{'; make room and run it again: what is done is kept' if full else ''}",
            FAILED,
            as_json=as_json,
        )
    except KeyboardInterrupt:
        return report_failure("", "stopped; the next run goes on from here", _INTERRUPTED, as_json=as_json)
