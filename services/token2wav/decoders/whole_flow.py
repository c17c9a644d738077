"""What the profiles need that compute a hop, or a sentence, from the first token on: the torch path
or engines.
"""

from typing import Protocol

from torch import Tensor

from services.token2wav.inputs.cancellation import Stop, never
from services.token2wav.inputs.voice_prompt import VoicePrompt


class WholeFlow(Protocol):
    """See `Flow`, whose methods these are."""

    def offline(self, voice: VoicePrompt, tokens: Tensor, *, stop: Stop = never) -> Tensor: ...

    def prefix(
        self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never
    ) -> Tensor: ...
