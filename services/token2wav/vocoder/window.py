"""The fixed grid of windows that the `continuous` vocoder renders, however its mel was cut.

A window is due when its last frame and the hold-back after it have arrived, and it uses exactly
those frames, so rendering it sooner or later gives the same samples. What remains at the end of the
sentence is rendered as one window.
"""

from dataclasses import dataclass

from cosyserve.spec import CHUNK_FRAMES
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.state import VocoderState

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
