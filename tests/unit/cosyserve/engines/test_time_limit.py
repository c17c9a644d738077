"""A call that never returns costs its caller no more than its time limit; one that returns late has
its result released.
"""

import queue
import subprocess
import sys
import threading
import time
import weakref

import pytest

from cosyserve.engines.time_limit import CallTimedOut, run_with_time_limit


class Engine:
    """Something with memory of its own."""


def test_results_and_errors_are_those_of_the_call() -> None:
    assert run_with_time_limit(10, lambda: "engine") == "engine"
    with pytest.raises(ZeroDivisionError):
        run_with_time_limit(10, lambda: 1 / 0)


def test_calls_one_after_another_share_a_thread_that_lives_on() -> None:
    first = run_with_time_limit(10, threading.current_thread)
    assert run_with_time_limit(10, threading.current_thread) is first
    assert first.is_alive()
    assert first.daemon


def test_a_call_that_hangs_is_given_up_and_the_next_one_runs() -> None:
    go_on, released = threading.Event(), queue.SimpleQueue[str]()

    def late() -> str:
        go_on.wait(30)
        return "late engine"

    began = time.monotonic()
    with pytest.raises(CallTimedOut):
        run_with_time_limit(0.1, late, released.put)
    assert time.monotonic() - began < 5
    assert run_with_time_limit(10, lambda: "next engine") == "next engine"
    assert released.empty()
    go_on.set()
    assert released.get(timeout=10) == "late engine"


def test_nothing_is_kept_of_what_was_loaded() -> None:
    gone = threading.Event()
    engine = run_with_time_limit(10, Engine)
    weakref.finalize(engine, gone.set)
    del engine
    assert gone.wait(5)


def test_a_process_with_a_call_that_hangs_can_end() -> None:
    program = (
        "import threading\nfrom cosyserve.engines.time_limit import run_with_time_limit\n"
        "run_with_time_limit(0.1, threading.Event().wait)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "CallTimedOut" in done.stderr
