"""Ctrl-C for programs that end on KeyboardInterrupt, also if the parent process had SIGINT
ignored.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_enabled() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt while the block runs, also if the process inherited that it
    is ignored.

    A shell without job control, nohup and most job runners start programs with SIGINT ignored;
    Python then installs no handler of its own, and SIGINT has no effect. Does nothing outside the
    main thread, because only that may set handlers.
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
