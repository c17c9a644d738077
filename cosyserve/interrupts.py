"""Ctrl-C for programs that end on KeyboardInterrupt, whatever the parent process had set for it."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt while the block runs, also where the process inherited that
    it is ignored.

    A shell without job control, nohup and most job runners start programs with SIGINT ignored;
    Python then installs no handler of its own, and a stop by SIGINT would have no effect. Without
    effect outside the main thread, which alone may set handlers.
    """
    ignored = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    )
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
