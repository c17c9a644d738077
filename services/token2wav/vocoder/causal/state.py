"""What causal HiFT keeps of one sentence between steps, and the shapes of its windows."""

from dataclasses import dataclass

from torch import Tensor

from services.token2wav.vocoder.causal.convolutions import Kept
from services.token2wav.vocoder.state import VocoderState, bytes_of, next_stop


@dataclass(kw_only=True)
class CausalVocoderState(VocoderState):
    """The sum of phase and the last columns of every convolution are carried from window to window,
    so no frame is computed twice.
    """

    total: Tensor | None = None
    """Float64 [1, harmonics]: see `CausalSource.waves`."""
    kept: Kept | None = None
    """None before the first window."""

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return super().bytes + bytes_of(self.total) + (self.kept.bytes if self.kept else 0)

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        super().release()
        self.total = self.kept = None


@dataclass(frozen=True)
class Piece:
    """One window: its frames, whether others came before it, how many frames of context are kept,
    and whether the sentence ends with it. Equal pieces have equal shapes and can share a batch.
    """

    frames: int
    begun: bool
    context: int
    ended: bool


def next_piece(state: CausalVocoderState, hold_back: int, context: int) -> Piece | None:
    """The window that is due, if there is one. context: frames of which an engine, which keeps no
    columns, computes the columns again; 0 for the network.
    """
    if (due := next_stop(state, hold_back)) is None:
        return None
    last, ended = due
    return Piece(last - state.rendered, state.rendered > 0, min(state.rendered, context), ended)
