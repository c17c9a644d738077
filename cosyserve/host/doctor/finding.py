"""What a check of `cosyserve doctor` says."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    """It serves, but slower, or less than it could; or nobody can say."""
    PROBLEM = "problem"
    """It will not serve, or not what was asked for."""


@dataclass(frozen=True)
class Finding:
    """check: what was looked at. found: what is there. means: what comes of it; mend: the command
    or step that changes it. Both are empty where all is well."""

    check: str
    state: State
    found: str
    means: str = ""
    mend: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, State.OK, found)


def note(check: str, found: str, means: str, mend: str = "") -> Finding:
    return Finding(check, State.NOTE, found, means, mend)


def problem(check: str, found: str, means: str, mend: str) -> Finding:
    return Finding(check, State.PROBLEM, found, means, mend)
