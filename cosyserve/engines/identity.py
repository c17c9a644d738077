"""Identity of an engine: two replicas with equal identities compute the same numbers from the same
request.
"""

from dataclasses import dataclass

from cosyserve.errors import FailedPrecondition


@dataclass(frozen=True)
class Identity:
    """Fields as in EngineIdentity of identity.proto."""

    model_hash: str
    backend: str
    precision: str
    device: str

    def require(self, expected: "Identity | None") -> None:
        """Raise FailedPrecondition if a request was begun by an engine that differs from
        this one.
        """
        if expected is not None and expected != self:
            raise FailedPrecondition(f"the request was begun by {expected}, this replica is {self}; start it again")
