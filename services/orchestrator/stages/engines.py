"""Which engines serve a request, and the name by which a lost one is resumed with the same ones."""

import hashlib
from dataclasses import dataclass

from cosyserve import errors, spec
from cosyserve.engines.compatibility import Identity
from cosyserve.generations.generation import SilentTokens

ASSEMBLY = 2
"""Revision of how sentences are joined, pauses between them and trimming of silence, and of how
runs of silent tokens are shortened. Raise it with each change that moves a sample, so that a
request from an earlier release is refused instead of resumed at other samples.
"""


@dataclass
class Engines:
    """Which engines serve a request: the first of each stage to answer. Filled while the request
    runs. No other engine continues what one has begun, in this sentence or the next, so samples
    never mix.
    """

    wanted: str = ""
    """Name in the resumed request; empty: any engine."""
    llm: Identity | None = None
    token2wav: Identity | None = None
    silent: SilentTokens | None = None
    """Tokens of which long runs are not spoken, as the LLM names them."""
    token_rate: float = 1.0
    """Of a conversion, whose recording was read with 25 * token_rate speech tokens a second: a
    frontend or an orchestrator of another release may read it with more or fewer.
    """
    euler_steps: int = spec.EULER_STEPS
    """That token2wav takes in each block."""

    @property
    def name(self) -> str:
        """Opaque; equal exactly if both engines, the tokens that are not spoken, the token rate and
        ASSEMBLY are. Final when the first audio is there.
        """
        parts: tuple[object, ...] = (self.llm, self.token2wav, ASSEMBLY)
        # Without silent tokens the name is that of releases that leave none out.
        if self.silent is not None:
            parts += (sorted(self.silent.ids), self.silent.longest_run)
        # With 25 tokens a second the name is that of releases that read no recording otherwise.
        if self.token_rate != 1.0:
            parts += ("token_rate", self.token_rate)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def require(self) -> None:
        """Raise FailedPrecondition if the request resumes one that other engines began. Call it
        with the first audio.
        """
        if self.wanted and self.wanted != self.name:
            raise errors.FailedPrecondition(
                f"the request was begun by engines {self.wanted}, now there are {self.name}; start it again"
            )
