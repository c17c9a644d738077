"""The state of one stream in a flow."""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import EULER_STEPS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.past import Past
from services.token2wav.flow.stream_cache import EMPTY, StreamCache

EMPTY_PER_STEP = (EMPTY,) * EULER_STEPS


@dataclass(eq=False)
class FlowState:
    """Passed in and advanced by `Flow.blocks`. Owned by one thread; only `cancelled` may be set
    from another one.

    speaker: projected embedding, float32 [80]. condition: the prompt's mel, float32 [2P, 80], on
    the flow's device.
    """

    speaker: Tensor
    condition: Tensor
    past: Past
    position: int = 0
    """Tokens computed, those of the prompt included."""
    cancelled: bool = False
    """Read before every Euler step. A stream that is seen cancelled frees its memory and computes
    nothing any more.
    """
    fault: InternalFault | None = None
    """Why this stream, and no other of its batch, cannot continue."""
    encoder: StreamCache = EMPTY
    steps: tuple[StreamCache, ...] = EMPTY_PER_STEP
    """One for each Euler step of the stream."""

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return self.condition.shape[0] // MEL_FRAMES_PER_TOKEN

    @property
    def bytes(self) -> int:
        """Bytes held, including those shared with forks."""
        return self.speaker.nbytes + self.condition.nbytes + self.encoder.bytes + sum(step.bytes for step in self.steps)

    def release(self) -> None:
        """Drop the stored past; memory that is shared with a fork stays with the fork."""
        self.encoder, self.steps = EMPTY, (EMPTY,) * len(self.steps)
