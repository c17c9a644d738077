"""`python -m cosyserve.host.supervision.die_with_parent MODULE`: run MODULE as a program that
cannot outlive its parent.

The parent holds the other end of the standard input of this process. When the parent has ended, for
any reason, the read below returns and this process ends, with its process group if it leads one.
This works on every Unix and runs no code between fork and exec, which would be unsafe with threads
in the parent.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_parent, daemon=True, name="watch-parent").start()
    module = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
