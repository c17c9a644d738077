"""What a vocoder keeps of one sentence between steps, and the fixed grid of windows that the
`continuous` profile renders, however its mel was cut.

A window is due when its last frame and the hold-back after it have arrived, and it uses exactly
those frames, so rendering it sooner or later gives the same samples. What remains at the end of the
sentence is rendered as one window.
"""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import CHUNK_FRAMES, MEL_BINS


def bytes_of(*tensors: Tensor | None) -> int:
    """Bytes of the tensors that are there."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


@dataclass(kw_only=True)
class VocoderState:
    """State in the `continuous` profile, to which each network adds what it keeps. Set `cancelled`
    from any thread: no further window is started once it is seen, and the memory is freed.

    Frames and samples are counted from the start of the sentence.
    """

    seed: int
    sentence: int
    mel: Tensor
    """[80, n]: the frames from `first_frame` on, which later windows may need."""
    first_stop: int
    """Where the first window ends; later ones have full length."""
    window_frames: int
    """The full length of a window."""
    first_frame: int = 0
    pitched: int = 0
    """Frames whose f0 has gone into the source."""
    rendered: int = 0
    """Frames that have been rendered in windows."""
    ended: bool = False
    cancelled: bool = False
    fault: InternalFault | None = None
    """Why this stream, and no other of its batch, cannot continue."""

    @property
    def received(self) -> int:
        """Mel frames received in total."""
        return self.first_frame + self.mel.shape[1]

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return bytes_of(self.mel)

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        self.mel = self.mel.new_zeros(MEL_BINS, 0)


@dataclass(kw_only=True)
class UpstreamVocoderState:
    """State in the `upstream` profile: what the reference calls its cache, None before the first
    call.
    """

    seed: int
    sentence: int
    mel: Tensor | None = None
    """[80, n]: frames of earlier calls that the next one renders again: 8 of HiFT, all of causal
    HiFT.
    """
    source: Tensor | None = None
    """[3840]: their excitation, of HiFT."""
    speech: Tensor | None = None
    """[3840]: their samples, held back for the cross-fade of HiFT."""
    frames: int = 0
    """Frames received in total."""
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return bytes_of(self.mel, self.source, self.speech)


SHORT_FRAMES = 10
"""Window length where chunks of mel end at arbitrary frames, as in stretched speech: at most 9
determined frames wait for the next chunk.
"""


def window_frames(speed: float) -> int:
    """Window length of a sentence. At speed 1 each chunk of the flow determines exactly one window
    of its own length: nothing waits, and context is computed once per 50 frames.
    """
    return CHUNK_FRAMES if speed == 1.0 else SHORT_FRAMES


def first_window(chunk_phase: int, hold_back: int, frames: int) -> int:
    """Length of the first window, so that windows of `frames` end where chunks of 50 frames, cut at
    `chunk_phase`, determine them.
    """
    return (chunk_phase - hold_back) % CHUNK_FRAMES % frames or frames


def next_stop(state: VocoderState, hold_back: int) -> tuple[int, bool] | None:
    """The frame at which the window that is due ends, and whether the sentence ends with it; None
    if no window is due.
    """
    first = state.rendered
    last = first + state.window_frames if first else state.first_stop
    if last + hold_back <= state.received:
        return last, False
    return (state.received, True) if state.ended and first < state.received else None
