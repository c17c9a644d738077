"""The result of one check of `cosyserve doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    """The services run, but slower or with less than they could; or the state is unknown."""
    PROBLEM = "problem"
    """The services will not run, or not as requested."""


@dataclass(frozen=True)
class Finding:
    check: str
    """What was checked."""
    state: State
    observed: str
    means: str = ""
    """The consequence; empty if all is well."""
    fix: str = ""
    """The command or step that changes it; empty if all is well."""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {
            "check": self.check, "state": self.state, "found": self.observed, "means": self.means, "mend": self.fix
        }  # fmt: skip


def ok(check: str, observed: str) -> Finding:
    return Finding(check, State.OK, observed)


def note(check: str, observed: str, means: str, fix: str = "") -> Finding:
    return Finding(check, State.NOTE, observed, means, fix)


def problem(check: str, observed: str, means: str, fix: str) -> Finding:
    return Finding(check, State.PROBLEM, observed, means, fix)
