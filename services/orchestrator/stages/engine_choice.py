"""Which engines speak a request: the first of each stage to answer, and from then on no other."""

import hashlib
from dataclasses import dataclass

from cosyserve.engines.identity import Identity
from cosyserve.errors import FailedPrecondition

ASSEMBLY = 2
"""Revision of how sentences are joined: pauses between them and trimming of silence. Raise it with
each change that moves a sample, so that a request which an earlier release began is refused in
place of being resumed at other samples."""


@dataclass
class Engines:
    """Filled while a request runs: what one engine began no other carries on, in this sentence or
    the next, so samples never mix.
    """

    wanted: str = ""
    """Name that a resumed request brings; empty: any."""
    llm: Identity | None = None
    token2wav: Identity | None = None

    @property
    def name(self) -> str:
        """Opaque; equal exactly when both engines and ASSEMBLY are. Settled when the first audio is
        there.
        """
        return hashlib.sha256(repr((self.llm, self.token2wav, ASSEMBLY)).encode()).hexdigest()[:16]

    def require(self) -> None:
        """Raise FailedPrecondition when the request resumes one that other engines began. To be
        called with the first audio.
        """
        if self.wanted and self.wanted != self.name:
            raise FailedPrecondition(
                f"the request was begun by engines {self.wanted}, now there are {self.name}; start it anew"
            )
