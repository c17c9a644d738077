"""The causal HiFT vocoder.

Streaming carries the last columns of every convolution from window to window. Nothing is computed
twice, and a window is exact because what lies before it is exactly there; a window that computed
its context again would take 30 frames of it. Costs: docs/decisions/0032-causal-vocoder-state.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve import philox
from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.causal.convolutions import History, Kept
from services.token2wav.vocoder.causal.network import CausalFilterNetwork
from services.token2wav.vocoder.causal.source import CausalPitch, CausalSource, ReferenceNoise
from services.token2wav.vocoder.causal.weights import (
    PITCH_LOOKAHEAD,
    CausalVocoderConfig,
    read_config,
    read_weights,
)
from services.token2wav.vocoder.source import source_noise
from services.token2wav.vocoder.state import (
    SHORT_FRAMES,
    UpstreamVocoderState,
    VocoderState,
    bytes_of,
    first_window,
    next_stop,
)
from services.token2wav.vocoder.vocoder import Vocoder, finite, mark_faults

SOURCE_AHEAD = 1
"""Frames by which the excitation runs ahead of the filter network: its transform is centred on the
end of a frame.
"""


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


def load_causal_hift(
    directory: ModelDirectory, device: torch.device, hold_back_frames: int | None = None
) -> "CausalVocoder":
    """Read sections hift and flow of the yaml and `hift.pt`; raises ModelError naming file and key
    or tensor, ValueError for another hold-back than the network's.
    """
    config = read_config(directory)
    weights = read_weights(directory, config)
    return CausalVocoder(config, weights, ReferenceNoise(directory, config), device, hold_back_frames)


class CausalVocoder(Vocoder):
    """Noise is philox.uniforms(seed, sentence, absolute sample, harmonic), so samples are a
    function of mel, seed and sentence; in the `upstream` profile it is the reference's own.

    T frames determine 480 (T - 4) - 3 samples, and `step` returns them when they fill a window.
    """

    def __init__(
        self,
        config: CausalVocoderConfig,
        weights: dict[str, Tensor],
        reference_noise: ReferenceNoise,
        device: torch.device,
        hold_back_frames: int | None = None,
    ) -> None:
        """Raises ValueError for a hold-back other than that of the network: carried columns cannot
        be computed from frames that have not arrived.
        """
        self.config, self.reference_noise = config, reference_noise
        self.f0 = CausalPitch(config, weights, device)
        self.source = CausalSource(config, weights, device)
        self.filter = CausalFilterNetwork(config, weights, device)
        exact = max(config.conv_pre_look_right, SOURCE_AHEAD + PITCH_LOOKAHEAD)
        if hold_back_frames not in (None, exact):
            raise ValueError(f"hold_back_frames is {hold_back_frames}, allowed {exact}")
        super().__init__(device, exact)
        self.upstream_hold_back_frames = PITCH_LOOKAHEAD + config.conv_pre_look_right + 1
        """What the reference holds back."""

    @torch.inference_mode()
    def offline(self, mel: Tensor, seed: int, sentence: int, *, stop: Stop = never) -> Tensor:
        """See `Vocoder`. `stop` is polled before each second of noise, before pitch and source, and
        between the convolutions, each of which covers the whole sentence.
        """
        if not mel.shape[1]:
            return torch.zeros(0, device=self.device)
        noise = self.noise(seed, sentence, 0, SAMPLES_PER_MEL_FRAME * mel.shape[1], stop)
        return self.render_whole(mel, noise, True, stop=stop)[0]

    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        """Uniform draws in [0, 1): [1, end - first, harmonics] for the samples first..end-1 of a
        sentence; see `source_noise`.
        """
        drawn = source_noise(seed, sentence, first, end, self.config.harmonics, stop, philox.uniforms)
        return drawn.to(self.device)[None]

    def start(
        self, seed: int, sentence: int, chunk_phase: int = 0, window_frames: int = SHORT_FRAMES
    ) -> CausalVocoderState:
        """See `Vocoder`."""
        return CausalVocoderState(
            seed=seed,
            sentence=sentence,
            mel=torch.zeros(MEL_BINS, 0, device=self.device),
            first_stop=first_window(chunk_phase, self.hold_back_frames, window_frames),
            window_frames=window_frames,
        )

    def _next(self, state: CausalVocoderState) -> Piece | None:
        return next_piece(state, self.hold_back_frames, self.filter.context_frames)

    def _render(self, window: Piece, states: list[CausalVocoderState]) -> list[Tensor]:
        frames, ended = window.frames, window.ended
        history = History.joined([state.kept for state in states])
        mel = torch.stack([state.mel[:, : frames + (0 if ended else self.hold_back_frames)] for state in states])
        ahead = states[0].pitched - states[0].rendered
        pitched = frames + (0 if ended else SOURCE_AHEAD) - ahead
        noise = torch.cat([self._noise_of(state, pitched) for state in states])
        f0 = self.f0(_reaching(mel[:, :, ahead:], pitched + PITCH_LOOKAHEAD), history)
        totals = [state.total for state in states if state.total is not None]
        source, total = self.source.generate(f0, torch.cat(totals) if totals else None, noise)
        samples = self.filter(
            _reaching(mel, frames + self.config.conv_pre_look_right),
            source,
            history,
            ended,
            lambda: all(state.cancelled for state in states),
        )
        for row, (state, kept) in enumerate(zip(states, history.kept(), strict=True)):
            state.mel = state.mel[:, frames:].clone()
            state.first_frame += frames
            state.rendered += frames
            state.pitched += pitched
            state.total, state.kept = total[row : row + 1].clone(), kept
        mark_faults(states, samples)
        return list(samples)

    def _noise_of(self, state: CausalVocoderState, frames: int) -> Tensor:
        first = SAMPLES_PER_MEL_FRAME * state.pitched
        return self.noise(state.seed, state.sentence, first, first + SAMPLES_PER_MEL_FRAME * frames)

    @torch.inference_mode()
    def step_upstream(self, state: UpstreamVocoderState, mel: Tensor, final: bool, *, stop: Stop = never) -> Tensor:
        """See `Vocoder`; compatibility specification of CosyVoice3, sections 5.5 and 6. All frames
        so far are rendered again, and eight are held back unless final.
        """
        if state.ended:
            raise InternalFault("vocoder: a step after the final one")
        held_back = self.upstream_hold_back_frames
        if mel.shape[1] < held_back and state.mel is None and not final:
            raise InvalidRequest(
                f"the first hop gives {mel.shape[1]} mel frames; profile upstream needs {held_back} or more"
            )
        mel = mel.to(self.device, torch.float32)
        whole = mel if state.mel is None else torch.cat([state.mel, mel], dim=1)
        given = SAMPLES_PER_MEL_FRAME * max(0, state.frames - held_back)
        state.frames, state.ended, state.mel = whole.shape[1], final, None if final else whole
        if not whole.shape[1]:
            return torch.zeros(0, device=self.device)
        noise = self.reference_noise.first(SAMPLES_PER_MEL_FRAME * whole.shape[1]).to(self.device)
        return self.render_whole(whole, noise, final, stop=stop)[0][given:]

    @torch.inference_mode()
    def render_whole(self, mel: Tensor, noise: Tensor, final: bool, *, stop: Stop = never) -> tuple[Tensor, Tensor]:
        """Arithmetic of a call of the reference. mel: [80, T]. noise: [1, 480 T, harmonics].
        Returns samples [480 T] and source [480 T], 480 (T - 8) and 480 (T - 3) unless final. Raises
        NonFinite for non-finite samples, Cancelled if `stop` returns True.
        """
        mel = mel.to(self.device, torch.float32)[None]
        source = self.excitation(mel, noise, final, stop)
        return finite(self.filtered(mel, source, final, stop))[0], source[0]

    def filtered(self, mel: Tensor, source: Tensor, final: bool, stop: Stop = never) -> Tensor:
        """Samples of mel [1, 80, T] with the source that `excitation` returns: [1, 480 T], eight
        frames less unless final.
        """
        frames = mel.shape[2]
        if final:
            reaching = _reaching(mel, frames + self.config.conv_pre_look_right)
            return self.filter(reaching, source, History(), final, stop)
        samples = self.filter(mel[:, :, : frames - PITCH_LOOKAHEAD], source, History(), final, stop)
        return samples[:, : SAMPLES_PER_MEL_FRAME * (frames - self.upstream_hold_back_frames)]

    def excitation(self, mel: Tensor, noise: Tensor, final: bool, stop: Stop = never) -> Tensor:
        """Source of mel [1, 80, T] from the beginning of a sentence: [1, 480 T], three frames less
        unless final.
        """
        raise_if_stopped(stop)
        f0 = self.f0(_reaching(mel, mel.shape[2] + PITCH_LOOKAHEAD) if final else mel, History())
        raise_if_stopped(stop)
        return self.source.generate(f0, None, noise[:, : SAMPLES_PER_MEL_FRAME * f0.shape[1]])[0]


def _reaching(mel: Tensor, frames: int) -> Tensor:
    """The first frames of [B, 80, n]; what is missing at the end of the sentence is zeros."""
    return F.pad(mel[:, :, :frames], (0, max(0, frames - mel.shape[2])))
