"""The vocoder's state of one sentence between steps, and the fixed grid of windows that the
`continuous` profile renders, however its mel was cut.

A window is due when its last frame and the hold-back after it have arrived, and it uses exactly
those frames, so rendering it sooner or later gives the same samples. What remains at the end of the
sentence is rendered as one window.
"""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import CHUNK_FRAMES, MEL_BINS
from services.token2wav.vocoder.source import F0Predictor, Phase


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


@dataclass(kw_only=True)
class VocoderState:
    """State in the `continuous` profile. Set `cancelled` from any thread: no further window is
    started once it is seen, and the memory is freed.

    Frames and samples are counted from the start of the sentence.
    """

    seed: int
    sentence: int
    mel: Tensor
    """[80, n]: the frames from `first_frame` on, which later windows may need."""
    source: Tensor
    """[m]: excitation from sample 480 * first_frame on."""
    first_stop: int
    """Where the first window ends; later ones have full length."""
    window_frames: int
    """The full length of a window."""
    phase: Phase | None = None
    first_frame: int = 0
    pitched: int = 0
    """Frames whose f0 has gone into the source."""
    rendered: int = 0
    """Frames whose samples have been returned."""
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
        phase = (self.phase.turns, self.phase.f0) if self.phase else ()
        return _bytes(self.mel, self.source, *phase)

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        self.mel, self.source, self.phase = self.mel.new_zeros(MEL_BINS, 0), self.source.new_zeros(0), None


@dataclass(kw_only=True)
class UpstreamVocoderState:
    """State in the `upstream` profile: what the reference calls its cache, None before the first
    call.
    """

    seed: int
    sentence: int
    mel: Tensor | None = None
    """[80, 8]: the last frames of the previous call."""
    source: Tensor | None = None
    """[3840]: their excitation."""
    speech: Tensor | None = None
    """[3840]: their samples, held back for the cross-fade."""
    frames: int = 0
    """Frames received in total."""
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return _bytes(self.mel, self.source, self.speech)


SHORT_FRAMES = 10
"""Window length where chunks of mel end at arbitrary frames, as in stretched speech: at most 9
determined frames wait for the next chunk.
"""


def window_frames(speed: float) -> int:
    """Window length of a sentence. At speed 1 each chunk of the flow determines exactly one window
    of its own length: nothing waits, and context is computed once per 50 frames.
    """
    return CHUNK_FRAMES if speed == 1.0 else SHORT_FRAMES


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


def first_window(chunk_phase: int, hold_back: int, frames: int) -> int:
    """Length of the first window, so that windows of `frames` end where chunks of 50 frames, cut at
    `chunk_phase`, determine them.
    """
    return (chunk_phase - hold_back) % CHUNK_FRAMES % frames or frames


def next_window(state: VocoderState, hold_back: int, frames_before: int) -> Window | None:
    """The window that is due, if there is one. frames_before: context of the filter network to the
    left of a window.
    """
    first = state.rendered
    last = first + state.window_frames if first else state.first_stop
    end, ended = last + hold_back, False
    if end > state.received:
        if not state.ended or first == state.received:
            return None
        last, end, ended = state.received, state.received, True
    settled = end if ended else end - F0Predictor.reach
    keep = max(state.first_frame, min(last - frames_before, settled - F0Predictor.reach))
    shift = state.first_frame
    return Window(
        first=first - shift,
        last=last - shift,
        frames=end - shift,
        pitched=state.pitched - shift,
        settled=settled - shift,
        keep=keep - shift,
        begun=state.phase is not None,
        ended=ended,
    )
