"""What HiFT keeps of one sentence between steps, and the frames that each of its windows uses."""

from dataclasses import dataclass

from torch import Tensor

from services.token2wav.vocoder.source import F0Predictor, Phase
from services.token2wav.vocoder.state import VocoderState, bytes_of, next_stop


@dataclass(kw_only=True)
class HiftState(VocoderState):
    """Phase and excitation are carried from window to window."""

    source: Tensor
    """[m]: excitation from sample 480 * first_frame on."""
    phase: Phase | None = None

    @property
    def bytes(self) -> int:
        """Bytes held."""
        phase = (self.phase.turns, self.phase.f0) if self.phase else ()
        return super().bytes + bytes_of(self.source, *phase)

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        super().release()
        self.source, self.phase = self.source.new_zeros(0), None


@dataclass(frozen=True)
class Window:
    """One rendering, in frames counted from the oldest stored one. Equal windows have equal shapes
    and can share a batch.
    """

    first: int
    last: int
    """Samples of frames first..last-1 are computed."""
    frames: int
    """Mel frames used; their end counts as the end of the sentence."""
    pitched: int
    settled: int
    """Frames pitched..settled-1 get their f0 and go into the source."""
    keep: int
    """The next window needs the frames from here on."""
    begun: bool
    ended: bool


def next_window(state: HiftState, hold_back: int, frames_before: int) -> Window | None:
    """The window that is due, if there is one. frames_before: context of the filter network to the
    left of a window.
    """
    if (due := next_stop(state, hold_back)) is None:
        return None
    last, ended = due
    end = last if ended else last + hold_back
    settled = end if ended else end - F0Predictor.reach
    keep = max(state.first_frame, min(last - frames_before, settled - F0Predictor.reach))
    shift = state.first_frame
    return Window(
        first=state.rendered - shift,
        last=last - shift,
        frames=end - shift,
        pitched=state.pitched - shift,
        settled=settled - shift,
        keep=keep - shift,
        begun=state.phase is not None,
        ended=ended,
    )
