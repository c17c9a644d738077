"""What causal HiFT keeps of one sentence between steps, and the shapes of its windows."""

from dataclasses import dataclass, field

from torch import Tensor

from services.token2wav.vocoder.state import VocoderState, bytes_of, next_stop


@dataclass(kw_only=True)
class CausalVocoderState(VocoderState):
    """The sum of phase and the last columns of every convolution are carried from window to window,
    so no frame is computed twice.
    """

    total: Tensor | None = None
    """Float64 [1, harmonics]: see `CausalSource.waves`."""
    columns: dict[str, Tensor] = field(default_factory=dict)
    """See `History`."""

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return super().bytes + bytes_of(self.total, *self.columns.values())

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        super().release()
        self.total, self.columns = None, {}


@dataclass(frozen=True)
class Piece:
    """One window: its frames, whether others came before it, and whether the sentence ends with it.
    Equal pieces have equal shapes and can share a batch.
    """

    frames: int
    begun: bool
    ended: bool


def next_piece(state: CausalVocoderState, hold_back: int) -> Piece | None:
    """The window that is due, if there is one."""
    if (due := next_stop(state, hold_back)) is None:
        return None
    last, ended = due
    return Piece(last - state.rendered, state.rendered > 0, ended)
