"""How a script reports the calls that it tried: one JSON line for each, and an exit status. Only
the standard library, since each script runs in the environment of its client.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version as version_of
from typing import Generic, TypeVar

E = TypeVar("E", bound=Exception)
OK = "ok"


class Calls:
    """client, version: what the table of compatibility names."""

    def __init__(self, client: str, version: str) -> None:
        self.client, self.version = client, version
        self.failed = False

    @classmethod
    def of(cls, package: str) -> "Calls":
        """Of an installed package."""
        return cls(package, version_of(package))

    @contextlib.contextmanager
    def tried(self, call: str) -> Iterator[list[str]]:
        """Report what the block does: whatever it raises is the result and the script goes on. It
        may append what it found to the list.
        """
        found: list[str] = []
        try:
            yield found
        except Exception as error:
            self.failed = True
            self._report(call, f"{type(error).__name__}: {error}")
        else:
            self._report(call, ", ".join((OK, *found)))

    def _report(self, call: str, result: str) -> None:
        row = {"client": self.client, "version": self.version, "call": call, "result": result}
        print(json.dumps(row), flush=True)

    def end(self) -> None:
        """Exit with 1 if a call failed."""
        sys.exit(1 if self.failed else 0)


class Refused(Generic[E]):
    """What a block raised that has to raise an error of this kind; AssertionError if it did not."""

    def __init__(self, kind: type[E]) -> None:
        self._kind = kind
        self.error: E

    def __enter__(self) -> "Refused[E]":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if error is None:
            raise AssertionError("it was accepted")
        if not isinstance(error, self._kind):
            return False
        self.error = error
        return True


def address() -> str:
    """The only argument: where the gateway answers, such as http://127.0.0.1:8080."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="of the gateway, such as http://127.0.0.1:8080")
    given: str = parser.parse_args().address
    return given.rstrip("/")
