"""Cooperative cancellation of a computation that is one call."""

from collections.abc import Callable

Stop = Callable[[], bool]
"""Polled between two units of work; True means that the result is no longer needed."""


class Cancelled(Exception):
    """Raised inside a call that was stopped between two units of work."""


def never() -> bool:
    """A `Stop` that never stops the work."""
    return False


def raise_if_stopped(stop: Stop) -> None:
    """Raise Cancelled if `stop` returns True."""
    if stop():
        raise Cancelled("stopped between two pieces of work")
