"""The vocoder's share of a step: frames into the ring, windows out of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_MEL_FRAME
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.step_work import StepWork
from services.token2wav.gpu.stream_state import PagedState
from services.token2wav.gpu.windowed_vocoder.window_batches import WINDOW_FRAMES, Render, batches
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.vocoder.window import window_frames

if TYPE_CHECKING:  # needs triton
    from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder


class VocoderStep:
    """For the engine's thread."""

    def __init__(self, vocoder: "WindowedVocoder", to_host: DeviceToHost) -> None:
        self._vocoder, self._to_host = vocoder, to_host

    def begin(self, state: PagedState) -> None:
        """A new sentence."""
        self._vocoder.forget(state.slot)

    def make(self, turns: list[StepWork]) -> None:
        """Stretch and render what is settled, windows of all streams together."""
        fresh = {
            id(turn): _stretched(turn)
            for turn in turns
            if not turn.state.cancelled and turn.state.fault is None and (turn.mels or turn.step_input.final)
        }
        due = [turn for turn in turns if id(turn) in fresh]
        while due:
            writes = [(turn, mel[:WINDOW_FRAMES]) for turn in due if len(mel := fresh[id(turn)])]
            if writes:
                self._vocoder.write(
                    [t.state.slot for t, _ in writes], [t.state.received for t, _ in writes], [mel for _, mel in writes]
                )
            for turn, mel in writes:
                turn.state.received += len(mel)
                fresh[id(turn)] = fresh[id(turn)][WINDOW_FRAMES:]
            for turn in due:
                turn.state.ended = turn.step_input.final and not len(fresh[id(turn)])
            while ready := [turn for turn in due if self._renderable(turn.state)]:
                self._render(ready)
            due = [turn for turn in due if len(fresh[id(turn)])]

    def _renderable(self, state: PagedState) -> int:
        """Frames whose samples are settled, one window at most."""
        settled = state.received if state.ended else state.received - self._vocoder.hold_back_frames
        return max(min(settled - state.rendered, WINDOW_FRAMES), 0)

    def _render(self, turns: Sequence[StepWork]) -> None:
        counts = [self._renderable(turn.state) for turn in turns]
        for frames, part in batches(counts, tuple(self._vocoder.shapes), self._vocoder.buckets):
            samples = self._vocoder.run([self._window(turns[at].state, counts[at]) for at in part], frames)
            # Looked at when the copy is done.
            host = self._to_host.receive(samples).numpy()
            for row, at in enumerate(part):
                turns[at].state.rendered += counts[at]
                turns[at].samples.append(host[row, : SAMPLES_PER_MEL_FRAME * counts[at]])

    @staticmethod
    def _window(state: PagedState, count: int) -> Render:
        return Render(
            state.slot, state.rendered, count, state.received if state.ended else None, state.seed, state.sentence
        )


class ReadableVocoderStep:
    """The same by the readable vocoder, whose state each stream carries; windows are whole blocks
    where frames come in blocks.
    """

    def __init__(self, vocoder: Vocoder) -> None:
        self._vocoder = vocoder

    def begin(self, state: PagedState) -> None:
        """A new sentence."""
        phase = MEL_FRAMES_PER_TOKEN * (-len(state.prompt) % CHUNK_TOKENS)
        state.vocoder = self._vocoder.start(state.seed, state.sentence, phase, window_frames(state.stretch.speed))

    def make(self, turns: list[StepWork]) -> None:
        """Stretch and render what is settled, windows of all streams together."""
        due = [
            (turn, turn.state.vocoder)
            for turn in turns
            if turn.state.vocoder is not None
            and not turn.state.cancelled
            and turn.state.fault is None
            and (turn.mels or turn.step_input.final)
        ]
        if not due:
            return
        mels, finals = [_stretched(turn).T for turn, _ in due], [turn.step_input.final for turn, _ in due]
        for (turn, state), samples in zip(
            due, self._vocoder.step([state for _, state in due], mels, finals), strict=True
        ):
            turn.state.fault = turn.state.fault or state.fault
            if samples is not None:
                turn.samples.append(samples.cpu().numpy())


def _stretched(turn: StepWork) -> Tensor:
    """New frames at the sentence's speed, float32 [n, 80]."""
    mel = turn.mels[0] if turn.mels else turn.state.speaker.new_zeros(0, MEL_BINS)
    if len(turn.mels) > 1:
        mel = torch.cat(turn.mels)
    if turn.state.stretch.speed == 1.0:
        return mel
    return MelStretch.step(turn.state.stretch, mel.T, turn.step_input.final).T
