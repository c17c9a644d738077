"""What every vocoder offers: mel frames in, 24 kHz samples out, for a whole sentence or as the
frames arrive. The networks behind it: `hift_vocoder`, `causal.vocoder`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import InternalFault, NonFinite
from cosyserve.spec import MEL_BINS
from services.token2wav.inputs.request import Cancelled, Stop, never
from services.token2wav.vocoder.state import SHORT_FRAMES, UpstreamVocoderState, VocoderState


class Vocoder(ABC):
    """Weights; the state of each sentence is passed in and modified. For one owner thread.

    `step` always renders the same windows, each from the same frames around it; how mel was cut
    only affects when they are rendered.
    """

    def __init__(self, device: torch.device, hold_back_frames: int) -> None:
        self.device = device
        self.hold_back_frames = hold_back_frames
        """Mel frames that have to follow a window before it is rendered."""
        self.windows = 0
        """Windows rendered so far, counted for each stream."""
        self.batch_invariant = device.type == "cpu"
        """Streams are rendered one by one, so that a stream's samples are bit-identical whatever
        runs in the same step.
        """

    @abstractmethod
    def offline(self, mel: Tensor, seed: int, sentence: int, *, stop: Stop = never) -> Tensor:
        """[80, T] at 50 Hz -> float32 [480 T] at 24 kHz within +-0.99, in one rendering: the
        reference's arithmetic.

        Raises NonFinite for non-finite samples, Cancelled if `stop` returns True.
        """

    @abstractmethod
    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        """The noise [1, end - first, harmonics] of the samples first..end-1 of a sentence: a
        function of these arguments.
        """

    @abstractmethod
    def start(self, seed: int, sentence: int, chunk_phase: int = 0, window_frames: int = SHORT_FRAMES) -> VocoderState:
        """A sentence in the `continuous` profile.

        chunk_phase: number of frames, modulo 50, after which the chunks of mel end. The windows are
        placed so that nothing that such a chunk determines waits for the next one; any other
        cutting works as well, with up to a window of extra delay. window_frames: length of the
        windows, a divisor of 50 (`state.window_frames`); longer ones are less work and give the
        same samples within rounding.
        """

    @abstractmethod
    def step_upstream(self, state: UpstreamVocoderState, mel: Tensor, final: bool, *, stop: Stop = never) -> Tensor:
        """One call of the reference's schedule: [80, n] new frames -> float32 [m].

        Raises InvalidRequest for a first call that is too short, InternalFault for a call after the
        final one, NonFinite for non-finite samples, Cancelled if `stop` returns True: the state is
        then invalid.
        """

    @abstractmethod
    def _next(self, state: Any) -> Hashable | None:
        """The window of a stream that is due, if there is one. Equal windows have equal shapes and
        can share a batch.
        """

    @abstractmethod
    def _render(self, window: Any, states: list[Any]) -> list[Tensor]:
        """Samples of a window of each stream; `mark_faults` has seen them. Raises Cancelled if all
        of them were cancelled meanwhile; then their states are invalid.
        """

    @torch.inference_mode()
    def step(self, states: Sequence[VocoderState], mels: list[Tensor], final: list[bool]) -> list[Tensor | None]:
        """The samples that new frames determine, for each stream: float32 [n], 480 * all frames in
        total after the final step.

        mels[i]: [80, n], n may be 0. The result is None for a stream that was seen cancelled, and
        for one whose samples are not finite: its `fault` then holds the reason, and the others
        continue. Raises InternalFault for a step after the final one, before any state has changed.
        """
        for index, (state, mel) in enumerate(zip(states, mels, strict=True)):
            if state.ended and not state.cancelled:
                raise InternalFault(f"vocoder: stream {index} got a step after its final one")
            if mel.ndim != 2 or mel.shape[0] != MEL_BINS:
                raise InternalFault(
                    f"vocoder: mel of stream {index} has shape {list(mel.shape)}, expected [{MEL_BINS}, n]"
                )
        for state, mel, ended in zip(states, mels, final, strict=True):
            if _alive(state):
                state.mel = torch.cat([state.mel, mel.to(self.device, torch.float32)], dim=1)
                state.ended = ended
        rendered: list[list[Tensor]] = [[] for _ in states]
        while due := self._due(states):
            for window, indices in due:
                for group in [[index] for index in indices] if self.batch_invariant else [indices]:
                    alive = [index for index in group if _alive(states[index])]
                    with contextlib.suppress(Cancelled):
                        for index, samples in zip(
                            alive, self._render(window, [states[i] for i in alive]) if alive else [], strict=True
                        ):
                            rendered[index].append(samples)
                            self.windows += 1
        return [self._hand_out(state, samples) for state, samples in zip(states, rendered, strict=True)]

    def _hand_out(self, state: VocoderState, samples: list[Tensor]) -> Tensor | None:
        if not _alive(state):
            state.release()
            return None
        if state.ended:
            state.release()
        return torch.cat(samples) if samples else torch.zeros(0, device=self.device)

    def _due(self, states: Sequence[VocoderState]) -> list[tuple[Hashable, list[int]]]:
        """The next window of every stream that has one, equal windows grouped."""
        groups: dict[Hashable, list[int]] = {}
        for index, state in enumerate(states):
            window = self._next(state) if _alive(state) else None
            if window is not None:
                groups.setdefault(window, []).append(index)
        return list(groups.items())


def _alive(state: VocoderState) -> bool:
    return not state.cancelled and state.fault is None


def finite(samples: Tensor) -> Tensor:
    """The same samples. Raises NonFinite."""
    if not bool(torch.isfinite(samples).all()):
        raise NonFinite("vocoder: samples are not finite")
    return samples


def mark_faults(states: Sequence[VocoderState], samples: Tensor) -> None:
    """Note in the state of each row of [B, n] that holds values that are not finite why it cannot
    continue.
    """
    for state, all_finite in zip(states, torch.isfinite(samples).all(dim=1).tolist(), strict=True):
        if not all_finite:
            state.fault = NonFinite(f"the vocoder produced samples that are not finite before frame {state.rendered}")
