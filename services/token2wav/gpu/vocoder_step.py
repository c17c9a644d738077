"""The vocoder's part of a step: frames go into the ring, windows are rendered from it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.stream_state import PagedState, StepWork
from services.token2wav.gpu.windowed_vocoder.windows import WINDOW_FRAMES, Render, batches
from services.token2wav.vocoder.state import window_frames
from services.token2wav.vocoder.vocoder import Vocoder

if TYPE_CHECKING:  # needs triton
    from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder


class VocoderStep:
    """For the engine's thread."""

    def __init__(self, vocoder: "WindowedVocoder", to_host: DeviceToHost) -> None:
        self._vocoder, self._to_host = vocoder, to_host

    def begin(self, state: PagedState) -> None:
        """Start a new sentence."""
        self._vocoder.forget(state.slot)

    def make(self, works: list[StepWork]) -> None:
        """Stretch the new frames and render what they determine, windows of all streams in
        batches.
        """
        new_mels = {
            id(work): _stretched(work)
            for work in works
            if not work.state.cancelled and work.state.fault is None and (work.mels or work.step_input.final)
        }
        due = [work for work in works if id(work) in new_mels]
        while due:
            writes = [(work, mel[:WINDOW_FRAMES]) for work in due if len(mel := new_mels[id(work)])]
            if writes:
                self._vocoder.write(
                    [work.state.slot for work, _ in writes],
                    [work.state.received for work, _ in writes],
                    [mel for _, mel in writes],
                )
            for work, mel in writes:
                work.state.received += len(mel)
                new_mels[id(work)] = new_mels[id(work)][WINDOW_FRAMES:]
            for work in due:
                work.state.ended = work.step_input.final and not len(new_mels[id(work)])
            while ready := [work for work in due if self._renderable(work.state)]:
                self._render(ready)
            due = [work for work in due if len(new_mels[id(work)])]

    def _renderable(self, state: PagedState) -> int:
        """Frames whose samples are determined, at most one window."""
        settled = state.received if state.ended else state.received - self._vocoder.hold_back_frames
        return max(min(settled - state.rendered, WINDOW_FRAMES), 0)

    def _render(self, works: Sequence[StepWork]) -> None:
        counts = [self._renderable(work.state) for work in works]
        for frames, part in batches(counts, tuple(self._vocoder.shapes), self._vocoder.buckets):
            windows = [self._window(works[at].state, counts[at]) for at in part]
            samples = self._vocoder.run(windows, frames)
            # Read only after the step has synchronized.
            host = self._to_host.receive(samples).numpy()
            for row, at in enumerate(part):
                works[at].state.rendered += counts[at]
                works[at].samples.append(host[row, windows[row].determined(self._vocoder.late_samples)])

    @staticmethod
    def _window(state: PagedState, count: int) -> Render:
        return Render(
            state.slot, state.rendered, count, state.received if state.ended else None, state.seed, state.sentence
        )


class ReadableVocoderStep:
    """The same with the readable vocoder, whose state is part of each stream; windows are whole
    blocks if frames arrive in blocks.
    """

    def __init__(self, vocoder: Vocoder) -> None:
        self._vocoder = vocoder

    def begin(self, state: PagedState) -> None:
        """Start a new sentence."""
        phase = state.units.grid.frames_to_border()
        state.vocoder = self._vocoder.start(state.seed, state.sentence, phase, window_frames(state.stretch.speed))

    def make(self, works: list[StepWork]) -> None:
        """Stretch the new frames and render what they determine, windows of all streams in
        batches.
        """
        due = [
            (work, work.state.vocoder)
            for work in works
            if work.state.vocoder is not None
            and not work.state.cancelled
            and work.state.fault is None
            and (work.mels or work.step_input.final)
        ]
        if not due:
            return
        mels, finals = [_stretched(work).T for work, _ in due], [work.step_input.final for work, _ in due]
        for (work, state), samples in zip(
            due, self._vocoder.step([state for _, state in due], mels, finals), strict=True
        ):
            work.state.fault = work.state.fault or state.fault
            if samples is not None:
                work.samples.append(samples.cpu().numpy())


def _stretched(work: StepWork) -> Tensor:
    """New frames at the sentence's speed, float32 [n, 80]."""
    mel = work.mels[0] if work.mels else work.state.speaker.new_zeros(0, MEL_BINS)
    if len(work.mels) > 1:
        mel = torch.cat(work.mels)
    if work.state.stretch.speed == 1.0:
        return mel
    return work.state.stretch.step(mel.T, work.step_input.final).T
