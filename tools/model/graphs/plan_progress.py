"""The progress of a plan's build, and how it is stopped: TensorRT works for minutes and checks for
a Ctrl-C only at its callbacks.
"""

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO, TypeVar

T = TypeVar("T")


class Progress:
    """Prints each phase of a build with its share done; called from TensorRT's threads.

    stop: asked at each step; true cancels the build.
    """

    def __init__(self, name: str, to: TextIO | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        self._name, self._to, self._stop = name, to or sys.stderr, stop
        self._lock = threading.Lock()
        self._steps: dict[str, int] = {}
        self._printed = 0.0

    def begin(self, phase: str, steps: int) -> None:
        """A phase of `steps` steps."""
        with self._lock:
            self._steps[phase] = max(steps, 1)

    def step(self, phase: str, step: int) -> bool:
        """A step is done, counted from 0; False cancels the build. Prints once a second."""
        with self._lock:
            now = time.monotonic()
            if now - self._printed >= 1.0:
                self._printed = now
                share = (step + 1) / self._steps.get(phase, 1)
                print(f"{self._name}: {phase} {share:.0%}", file=self._to, flush=True)
        return not self._stop()

    def end(self, phase: str) -> None:
        """The phase is over."""
        with self._lock:
            self._steps.pop(phase, None)


def monitor(progress: Progress) -> Any:
    """TensorRT's own interface over `progress`; a class is made here because its parent is only
    there when TensorRT is.
    """
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # mypy has no types of tensorrt; pyright checks this file
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
            progress.begin(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return progress.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            progress.end(phase_name)

    return Monitor()


def interruptible(build: Callable[[Callable[[], bool]], T]) -> T:
    """What `build` returns, in another thread, so that this one can receive a Ctrl-C. `build`
    gets what its progress asks as `stop`, and after a KeyboardInterrupt is waited for."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="plan") as thread:
        try:
            return thread.submit(build, stopped.is_set).result()
        except BaseException:
            stopped.set()
            raise
