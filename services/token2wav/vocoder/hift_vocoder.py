"""The HiFT vocoder.

Streaming recomputes context instead of storing the state of about a hundred convolutions: each
layer computes just the columns that a window depends on (`receptive_field`), and every window has
the same shape. Only phase and source samples are carried over. The cost of windows of 50 and of 10
frames, compared with rendering the whole sentence: docs/decisions/0003-vocoder-hold-back.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.hift import FilterNetwork
from services.token2wav.vocoder.receptive_field import context
from services.token2wav.vocoder.source import F0Predictor, Phase, Source, joined_phases, source_noise
from services.token2wav.vocoder.state import (
    SHORT_FRAMES,
    UpstreamVocoderState,
    VocoderState,
    bytes_of,
    first_window,
    next_stop,
)
from services.token2wav.vocoder.vocoder import Vocoder, finite, mark_faults
from services.token2wav.vocoder.weights import VocoderConfig, load_weights, read_config

OVERLAP_FRAMES = 8
OVERLAP_SAMPLES = 3840


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


def hamming_window() -> Tensor:
    """Symmetric Hamming window [7680], float64: 0.54 - 0.46 cos(2 pi n / 7679)."""
    return torch.hamming_window(2 * OVERLAP_SAMPLES, periodic=False, alpha=0.54, beta=0.46, dtype=torch.float64)


def crossfade(new: Tensor, old: Tensor, window: Tensor) -> Tensor:
    """Fade in the first 3840 samples of `new` [N] over `old` [3840], in float64: the reference's
    cross-fade between two calls, whose halves sum to 1.08, so the overlap is 8 % too loud. Source:
    compatibility specification section 6.2.
    """
    seam = new[:OVERLAP_SAMPLES].double() * window[:OVERLAP_SAMPLES] + old.double() * window[OVERLAP_SAMPLES:]
    return torch.cat([seam.to(new.dtype), new[OVERLAP_SAMPLES:]])


def load_hift(directory: ModelDirectory, device: torch.device, hold_back_frames: int | None = None) -> "HiftVocoder":
    """Read section hift of the yaml and `hift.pt`; raises ModelError naming file and key or tensor.

    hold_back_frames: None holds back exactly what the samples depend on; a smaller number trades
    exactness for earlier first audio.
    """
    config = read_config(directory)
    return HiftVocoder(config, load_weights(directory, config), device, hold_back_frames)


class HiftVocoder(Vocoder):
    """Noise is philox.normal(seed, sentence, absolute sample, harmonic), so samples are a function
    of mel, seed and sentence.
    """

    def __init__(
        self,
        config: VocoderConfig,
        weights: dict[str, Tensor],
        device: torch.device,
        hold_back_frames: int | None = None,
    ) -> None:
        self.f0 = F0Predictor(weights, device)
        self.source = Source(config, weights, device)
        self.filter = FilterNetwork(config, weights, device)
        self.config, self._context = config, context(config)
        self._crossfade_window = hamming_window().to(device)
        exact = self._context.hold_back(F0Predictor.reach)
        if hold_back_frames is not None and not F0Predictor.reach < hold_back_frames <= exact:
            raise ValueError(f"hold_back_frames is {hold_back_frames}, allowed {F0Predictor.reach + 1} to {exact}")
        super().__init__(device, exact if hold_back_frames is None else hold_back_frames)

    @torch.inference_mode()
    def offline(self, mel: Tensor, seed: int, sentence: int, *, stop: Stop = never) -> Tensor:
        """See `Vocoder`. `stop` is polled before each second of noise, before pitch and source, and
        between the convolutions of the filter, each of which covers the whole sentence.
        """
        frames = mel.shape[1]
        if not frames:
            return torch.zeros(0, device=self.device)
        mel = mel.to(self.device, torch.float32).contiguous()[None]
        noise = self.noise(seed, sentence, 0, SAMPLES_PER_MEL_FRAME * frames, stop)
        return finite(self.filter(mel, self._sentence_source(mel, noise, stop), 0, frames, stop))[0]

    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        """Standard normal draws [1, end - first, harmonics] for the samples first..end-1 of a
        sentence; see `source_noise`.
        """
        return source_noise(seed, sentence, first, end, self.config.harmonics, stop).to(self.device)[None]

    def start(self, seed: int, sentence: int, chunk_phase: int = 0, window_frames: int = SHORT_FRAMES) -> HiftState:
        """See `Vocoder`."""
        return HiftState(
            seed=seed,
            sentence=sentence,
            mel=torch.zeros(MEL_BINS, 0, device=self.device),
            source=torch.zeros(0, device=self.device),
            first_stop=first_window(chunk_phase, self.hold_back_frames, window_frames),
            window_frames=window_frames,
        )

    def _next(self, state: HiftState) -> Window | None:
        return next_window(state, self.hold_back_frames, self._context.frames_before)

    def _render(self, window: Window, states: list[HiftState]) -> list[Tensor]:
        mel = torch.stack([state.mel[:, : window.frames] for state in states])
        start = max(0, window.pitched - F0Predictor.reach)
        f0 = self.f0(mel[:, :, start:].contiguous())[:, window.pitched - start :]
        settled = window.settled - window.pitched
        excitation, phase = self._excitation(
            states, f0[:, :settled], joined_phases([state.phase for state in states]), window.ended
        )
        source = torch.cat([torch.stack([state.source for state in states]), excitation], dim=1)
        for row, state in enumerate(states):
            state.source = source[row, SAMPLES_PER_MEL_FRAME * window.keep :].clone()
            state.mel = state.mel[:, window.keep :].clone()
            state.first_frame += window.keep
            state.pitched += settled
            state.rendered += window.last - window.first
            state.phase = phase.row(row)
        if self.filter.plan(window.first, window.last, window.frames).source.stop > source.shape[1]:
            # Only with a hold-back below the exact one: the rest of the source is generated as if
            # the sentence ended here, and is used only for this window.
            rest, _ = self._excitation(states, f0[:, settled:], phase, ended=True)
            source = torch.cat([source, rest], dim=1)
        samples = self.filter(mel, source, window.first, window.last, lambda: all(state.cancelled for state in states))
        mark_faults(states, samples)
        return list(samples)

    def _excitation(
        self, states: list[HiftState], f0: Tensor, before: Phase | None, ended: bool
    ) -> tuple[Tensor, Phase]:
        noise = []
        for state in states:
            first, stop = self.source.span(state.pitched, f0.shape[1], ended)
            noise.append(self.noise(state.seed, state.sentence, first, stop))
        return self.source.generate(f0, before, torch.cat(noise), ended)

    def _sentence_source(self, mel: Tensor, noise: Tensor, stop: Stop) -> Tensor:
        """Excitation [1, 480 T] of all frames of mel [1, 80, T], with the phase starting from
        zero.
        """
        raise_if_stopped(stop)
        f0 = self.f0(mel)
        raise_if_stopped(stop)
        return self.source.generate(f0, None, noise, ended=True)[0]

    @torch.inference_mode()
    def step_upstream(self, state: UpstreamVocoderState, mel: Tensor, final: bool, *, stop: Stop = never) -> Tensor:
        """One call of the reference's schedule (compatibility specification section 6.2): [80, n]
        new frames -> float32 [m].

        8 frames and their source are repeated from the previous call, the phase starts from zero,
        the seam is cross-faded, and 3840 samples are held back unless final. In a seam samples
        reach 0.99 * 1.08: clip before converting to integers. Raises InvalidRequest for a first
        call that is neither final nor 8 frames long, InternalFault for a call after the final one,
        NonFinite for non-finite samples, Cancelled if `stop` returns True: the state is then
        invalid.
        """
        if state.ended:
            raise InternalFault("vocoder: a step after the final one")
        if mel.shape[1] < OVERLAP_FRAMES and state.mel is None and not final:
            raise InvalidRequest(
                f"the first hop gives {mel.shape[1]} mel frames; profile upstream needs {OVERLAP_FRAMES} or more"
            )
        mel = mel.to(self.device, torch.float32)
        whole = mel if state.mel is None else torch.cat([state.mel, mel], dim=1)
        first = SAMPLES_PER_MEL_FRAME * (state.frames + mel.shape[1] - whole.shape[1])
        state.frames, state.ended = state.frames + mel.shape[1], final
        if not whole.shape[1]:
            return torch.zeros(0, device=self.device)
        noise = self.noise(state.seed, state.sentence, first, first + SAMPLES_PER_MEL_FRAME * whole.shape[1], stop)
        samples, source = self.render_upstream(whole, noise, state.source, state.speech, stop=stop)
        if final:
            state.mel = state.source = state.speech = None
            return samples
        state.mel = whole[:, -OVERLAP_FRAMES:].clone()
        state.source, state.speech = source[-OVERLAP_SAMPLES:].clone(), samples[-OVERLAP_SAMPLES:].clone()
        return samples[:-OVERLAP_SAMPLES]

    @torch.inference_mode()
    def render_upstream(
        self, mel: Tensor, noise: Tensor, source: Tensor | None, speech: Tensor | None, *, stop: Stop = never
    ) -> tuple[Tensor, Tensor]:
        """Arithmetic of one such call. mel: [80, T] with the repeated frames. noise: [1, 480 T,
        harmonics]. source: cached source [n], which overwrites the first samples of the new one.
        speech: cached samples to fade from. Returns samples and source, both [480 T]. Raises
        NonFinite for non-finite samples, Cancelled if `stop` returns True.
        """
        excitation = self._sentence_source(mel.contiguous()[None], noise, stop)
        if source is not None:
            excitation = torch.cat([source[None], excitation[:, source.shape[0] :]], dim=1)
        samples = finite(self.filter(mel[None], excitation, 0, mel.shape[1], stop))[0]
        return (samples if speech is None else crossfade(samples, speech, self._crossfade_window)), excitation[0]
