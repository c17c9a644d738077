"""Where one stream stands in the flow."""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import EULER_STEPS
from services.token2wav.flow.stream_cache import StreamCache
from services.token2wav.inputs.voice_prompt import VoicePrompt

NOTHING = StreamCache()
NOTHING_PER_STEP = (NOTHING,) * EULER_STEPS


@dataclass(eq=False)
class FlowState:
    """Passed in and advanced by `Flow.blocks`; owned by one thread, only `cancelled` may be set
    from another.

    speaker: projected embedding, float32 [80]. condition: the prompt's mel, float32 [2P, 80], on
    the flow's device.
    """

    voice: VoicePrompt
    speaker: Tensor
    condition: Tensor
    position: int = 0
    """Tokens done, those of the prompt included."""
    cancelled: bool = False
    """Read before every Euler step; a stream seen cancelled gives its memory back and makes nothing
    any more.
    """
    fault: InternalFault | None = None
    """Why this stream, and no other of its batch, can go no further."""
    encoder: StreamCache = NOTHING
    steps: tuple[StreamCache, ...] = NOTHING_PER_STEP

    @property
    def bytes(self) -> int:
        """Memory held, what is shared with forks included."""
        return self.speaker.nbytes + self.condition.nbytes + self.encoder.bytes + sum(step.bytes for step in self.steps)

    def release(self) -> None:
        """Let go of what the past blocks left; memory shared with a fork stays with the fork."""
        self.encoder, self.steps = NOTHING, NOTHING_PER_STEP
