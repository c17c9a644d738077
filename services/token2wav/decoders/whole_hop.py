"""Shared by the decoders that compute a hop, or a whole sentence, in one step from the first token
on: the flow they need and the state of a stream.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.inputs.cancellation import Stop, never


@dataclass(eq=False, kw_only=True)
class OneStepState:
    """One stream, with little or no state between its steps. position counts from the first prompt
    token.
    """

    voice: VoicePrompt
    position: int
    cancelled: bool = False
    prompt_cached: None = None
    recomputing: bool = False
    """False, although every step starts from the first token: the stream never had memory to give
    up.
    """

    @property
    def bytes(self) -> int:
        """Bytes held between steps."""
        return 0

    def reach(self, end: int) -> int:
        """The end: whatever is due is one step."""
        return end

    def early(self, tokens: int) -> int:
        """Nothing can be computed before a hop is due."""
        return self.position

    def cancel(self) -> None:
        """See `stop`. May be called from any thread."""
        self.cancelled = True

    def stop(self) -> bool:
        """Polled before each Euler step and between the convolutions of the vocoder."""
        return self.cancelled


class WholeFlow(Protocol):
    """A flow without state between calls, in torch or as an engine; see the methods of `Flow`."""

    def offline(self, voice: VoicePrompt, tokens: Tensor, *, stop: Stop = never) -> Tensor: ...

    def prefix(
        self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never
    ) -> Tensor: ...
