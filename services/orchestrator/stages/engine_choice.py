"""Which engines serve a request: the first of each stage to answer, and then no other."""

import hashlib
from dataclasses import dataclass

from cosyserve.engines.compatibility import Identity
from cosyserve.errors import FailedPrecondition

ASSEMBLY = 2
"""Revision of how sentences are joined: pauses between them and trimming of silence. Raise it with
each change that moves a sample, so that a request from an earlier release is refused instead of
resumed at other samples.
"""


@dataclass
class Engines:
    """Filled while a request runs. No other engine continues what one has begun, in this sentence
    or the next, so samples never mix.
    """

    wanted: str = ""
    """Name in the resumed request; empty: any engine."""
    llm: Identity | None = None
    token2wav: Identity | None = None

    @property
    def name(self) -> str:
        """Opaque; equal exactly if both engines and ASSEMBLY are. Final when the first audio is
        there.
        """
        return hashlib.sha256(repr((self.llm, self.token2wav, ASSEMBLY)).encode()).hexdigest()[:16]

    def require(self) -> None:
        """Raise FailedPrecondition if the request resumes one that other engines began. Call it
        with the first audio.
        """
        if self.wanted and self.wanted != self.name:
            raise FailedPrecondition(
                f"the request was begun by engines {self.wanted}, now there are {self.name}; start it again"
            )
