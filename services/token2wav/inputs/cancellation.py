"""Stopping a computation that is one call."""

from collections.abc import Callable

Stop = Callable[[], bool]
"""Asked between two pieces of work; true: nobody wants the result any more."""


class Cancelled(Exception):
    """A call was told to stop between two pieces of its work."""


def never() -> bool:
    """Nothing stops the work."""
    return False


def raise_if_stopped(stop: Stop) -> None:
    """Raise Cancelled when `stop` says so."""
    if stop():
        raise Cancelled("stopped between two pieces of work")
