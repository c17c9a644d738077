"""The vocoder's share of a step: frames into the ring, windows out of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS, SAMPLES_PER_MEL_FRAME
from services.token2wav.gpu.state import PagedState
from services.token2wav.gpu.turn import Turn
from services.token2wav.gpu.vocoder import WINDOW_FRAMES, Render, WindowedVocoder
from services.token2wav.vocoder.stretch import MelStretch


class Sounding:
    """For the engine's thread."""

    def __init__(self, vocoder: WindowedVocoder, *, pinned: bool) -> None:
        self._vocoder, self._cuda = vocoder, pinned

    def make(self, turns: list[Turn]) -> None:
        """Stretch and render what is settled, windows of all streams together."""
        fresh = {
            id(turn): self._stretched(turn)
            for turn in turns
            if not turn.state.cancelled and turn.state.fault is None and (turn.mels or turn.stride.final)
        }
        due = [turn for turn in turns if id(turn) in fresh]
        while due:
            writes = [(turn, mel[:WINDOW_FRAMES]) for turn in due if len(mel := fresh[id(turn)])]
            if writes:
                self._vocoder.write([t.state.slot for t, _ in writes], [t.state.received for t, _ in writes], [mel for _, mel in writes])
            for turn, mel in writes:
                turn.state.received += len(mel)
                fresh[id(turn)] = fresh[id(turn)][WINDOW_FRAMES:]
            for turn in due:
                turn.state.ended = turn.stride.final and not len(fresh[id(turn)])
            while ready := [turn for turn in due if self._renderable(turn.state)]:
                self._render(ready)
            due = [turn for turn in due if len(fresh[id(turn)])]

    def _stretched(self, turn: Turn) -> Tensor:
        mel = torch.cat(turn.mels) if turn.mels else turn.state.speaker.new_zeros(0, MEL_BINS)
        if turn.state.stretch.speed == 1.0:
            return mel
        return MelStretch.step(turn.state.stretch, mel.T, turn.stride.final).T

    def _renderable(self, state: PagedState) -> int:
        """Frames whose samples are settled, one window at most."""
        settled = state.received if state.ended else state.received - self._vocoder.hold_back_frames
        return max(min(settled - state.rendered, WINDOW_FRAMES), 0)

    def _render(self, turns: Sequence[Turn]) -> None:
        most = self._vocoder.buckets[-1]
        for first in range(0, len(turns), most):
            part = turns[first : first + most]
            counts = [self._renderable(turn.state) for turn in part]
            samples = self._vocoder.run([self._window(turn.state, count) for turn, count in zip(part, counts, strict=True)])
            host = torch.empty(samples.shape, pin_memory=self._cuda).copy_(samples, non_blocking=True)
            for at, (turn, count) in enumerate(zip(part, counts, strict=True)):
                turn.state.rendered += count
                # Looked at when the copy is done.
                turn.samples.append(host[at, : SAMPLES_PER_MEL_FRAME * count].numpy())

    @staticmethod
    def _window(state: PagedState, count: int) -> Render:
        return Render(state.slot, state.rendered, count, state.received if state.ended else None, state.seed, state.sentence)
