"""What the decoders have in common that take a hop, or a whole sentence, in one step from the first
token on.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.token2wav.inputs.cancellation import Stop, never
from services.token2wav.inputs.voice_prompt import VoicePrompt


@dataclass(eq=False, kw_only=True)
class OneStepState:
    """One stream; little or nothing is kept between its steps. position counts from the first
    prompt token.
    """

    voice: VoicePrompt
    position: int
    cancelled: bool = False
    prompt_cached: None = None
    recomputing: bool = False
    """What it makes again does not stand for memory that it once had."""

    @property
    def bytes(self) -> int:
        """Memory held between steps."""
        return 0

    def reach(self, end: int) -> int:
        """The end: what is due is one step."""
        return end

    def early(self, tokens: int) -> int:
        """Nothing can be done before a hop is due."""
        return self.position

    def cancel(self) -> None:
        """See `stop`. May be called from any thread."""
        self.cancelled = True

    def stop(self) -> bool:
        """Asked before each Euler step and between the convolutions of the vocoder."""
        return self.cancelled


class WholeFlow(Protocol):
    """See `Flow`, whose methods these are."""

    def offline(self, voice: VoicePrompt, tokens: Tensor, *, stop: Stop = never) -> Tensor: ...

    def prefix(
        self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never
    ) -> Tensor: ...
