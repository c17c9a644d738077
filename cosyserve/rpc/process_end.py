"""The end of a service's process. One that does not end in its time is killed by its supervisor;
before that its log says what it waits for.
"""

import asyncio
import collections
import contextlib
import faulthandler
import logging
import os
import sys
from typing import Any, NoReturn

log = logging.getLogger(__name__)
LATE_SECONDS = 7.0
"""After the drain, which calls may outlast by a second and the last spans by three. The supervisor
of one machine kills after ten.
"""
_MOST_NAMED = 8


def watch(seconds: float = 0.0) -> None:
    """If the process is still there LATE_SECONDS after so many seconds, log which tasks its event
    loop still has, if one runs, and write the stacks of all its threads to standard error. A
    further call starts the time again.
    """
    with contextlib.suppress(RuntimeError):  # no event loop
        asyncio.get_running_loop().call_later(seconds + LATE_SECONDS, _log_tasks)
    with contextlib.suppress(AttributeError, OSError, ValueError):  # standard error is no file
        faulthandler.dump_traceback_later(seconds + LATE_SECONDS)


def exit_at_once(status: int) -> NoReturn:
    """End the process without waiting for its threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _log_tasks() -> None:
    places = collections.Counter(_place(task) for task in asyncio.all_tasks())
    named = ", ".join(f"{count} in {place}" for place, count in places.most_common(_MOST_NAMED))
    log.warning("this process should have ended and still has %d tasks: %s", places.total(), named)


def _place(task: "asyncio.Task[object]") -> str:
    """Where the task stands: the innermost of its coroutines that is known, and the line."""
    place: Any = task.get_coro()
    while getattr(inner := getattr(place, "cr_await", None), "cr_frame", None) is not None:
        place = inner
    frame, name = getattr(place, "cr_frame", None), getattr(place, "__qualname__", "?")
    return name if frame is None else f"{name} ({frame.f_code.co_filename}:{frame.f_lineno})"
