"""Fundamental frequency of clean speech, frame by frame: what the vocoder's f0 predictor learns
from.

Autocorrelation of a windowed frame over that of the window, then the cheapest path through the
peaks of an utterance. Source: Boersma, "Accurate short-term analysis of the fundamental frequency
and the harmonics-to-noise ratio of a sampled sound", 1993; his costs.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from recipes.demo_voice.training.speech import Speech, by_length, gather

LOWEST, HIGHEST = 60.0, 450.0
"""Hz."""
_SHORTEST_LAG, _LONGEST_LAG = int(SAMPLE_RATE / HIGHEST), math.ceil(SAMPLE_RATE / LOWEST)
_WINDOW, _N_FFT = 1200, 2048
"""Three periods of the lowest pitch; a transform long enough that no lag wraps around."""
_CANDIDATES = 6
_SILENCE, _VOICING = 0.03, 0.5
_OCTAVE = 0.01
_OCTAVE_JUMP, _VOICING_CHANGE = 0.35, 0.14
_NEVER = -1e3
_FRAMES_AT_ONCE = 40_000


def of_speech(speech: Speech) -> tuple[Tensor, list[int]]:
    """f0 of all utterances end to end, float32 [frames] in Hz, 0 where unvoiced, on the device of
    the audio; and where each one starts.
    """
    device = speech.audio.device
    frames = [each.samples // SAMPLES_PER_MEL_FRAME for each in speech.utterances]
    first = [0, *np.cumsum(frames).tolist()]
    pitch = torch.zeros(first[-1], device=device)
    for batch in by_length(range(len(frames)), frames, _FRAMES_AT_ONCE, np.random.default_rng(0)):
        longest = max(frames[member] for member in batch)
        starts = torch.tensor([speech.utterances[member].start for member in batch], device=device)
        lengths = torch.tensor([frames[member] for member in batch], device=device)
        waves = gather(speech.audio, starts, SAMPLES_PER_MEL_FRAME * longest).float() / 32768
        inside = torch.arange(longest, device=device) < lengths[:, None]
        values = track(waves * inside.repeat_interleave(SAMPLES_PER_MEL_FRAME, dim=1))
        places = torch.tensor([first[member] for member in batch], device=device)[:, None] + torch.arange(
            longest, device=device
        )
        pitch[places[inside]] = values[inside]
    return pitch, first[:-1]


def track(waves: Tensor) -> Tensor:
    """float32 [B, 480 T] at 24 kHz -> [B, T] Hz at the centres of the frames, 0 where unvoiced."""
    pitches, strengths, unvoiced = candidates(waves)
    return cheapest(pitches, strengths, unvoiced)


def candidates(waves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Peaks of the autocorrelation: Hz and strength, both [B, T, 6], and the strength of being
    unvoiced [B, T].
    """
    margin = (_WINDOW - SAMPLES_PER_MEL_FRAME) // 2
    frames = F.pad(waves, (margin, margin)).unfold(1, _WINDOW, SAMPLES_PER_MEL_FRAME)
    window = torch.hann_window(_WINDOW, device=waves.device)
    loudness = frames.abs().amax(dim=-1)
    correlation = _autocorrelation((frames - frames.mean(dim=-1, keepdim=True)) * window)
    correlation = correlation / (correlation[..., :1] + 1e-6)
    shape = _autocorrelation(window)
    correlation = correlation / (shape / shape[0])

    middle = correlation[..., _SHORTEST_LAG : _LONGEST_LAG + 1]
    before, after = (
        correlation[..., _SHORTEST_LAG - 1 : _LONGEST_LAG],
        correlation[..., _SHORTEST_LAG + 1 : _LONGEST_LAG + 2],
    )
    lags = torch.arange(_SHORTEST_LAG, _LONGEST_LAG + 1, device=waves.device)
    favour = middle - _OCTAVE * torch.log2(LOWEST * lags / SAMPLE_RATE)
    peak = (middle > before) & (middle >= after) & (middle > 0.5 * _VOICING)
    strengths, places = torch.where(peak, favour, _NEVER).topk(_CANDIDATES, dim=-1)
    left, centre, right = (values.gather(-1, places) for values in (before, middle, after))
    shift = 0.5 * (left - right) / (left - 2 * centre + right).clamp(max=-1e-6)
    pitches = SAMPLE_RATE / (places + _SHORTEST_LAG + shift.clamp(-1, 1))

    relative = loudness / loudness.amax(dim=1, keepdim=True).clamp(min=1e-4)
    unvoiced = _VOICING + (2 - relative * (1 + _VOICING) / _SILENCE).clamp(min=0)
    return pitches, strengths, unvoiced


def cheapest(pitches: Tensor, strengths: Tensor, unvoiced: Tensor) -> Tensor:
    """The path with the greatest sum of strengths less the costs of octave jumps and of changes of
    voicing: [B, T] Hz, 0 is unvoiced.
    """
    octaves = torch.log2(pitches)
    gains = torch.cat([strengths, unvoiced[..., None]], dim=-1)
    total, arrows = gains[:, 0], []
    silent = gains.shape[-1] - 1
    for frame in range(1, gains.shape[1]):
        jumps = (octaves[:, frame - 1, :, None] - octaves[:, frame, None, :]).abs()
        cost = F.pad(_OCTAVE_JUMP * jumps, (0, 1, 0, 1), value=_VOICING_CHANGE)
        cost[:, -1, -1] = 0
        best, arrow = (total[:, :, None] - cost).max(dim=1)
        arrows.append(arrow)
        total = best + gains[:, frame]
    state = total.argmax(dim=1, keepdim=True)
    path = [state]
    for arrow in reversed(arrows):
        state = arrow.gather(1, state)
        path.append(state)
    chosen = torch.cat(path[::-1], dim=1)
    hertz = pitches.gather(-1, chosen.clamp(max=silent - 1)[..., None])[..., 0]
    return torch.where(chosen == silent, 0.0, hertz)


def _autocorrelation(x: Tensor) -> Tensor:
    """Of the last dimension, lags 0 to one past the longest."""
    spectrum = torch.fft.rfft(x, _N_FFT)
    lags: Tensor = torch.fft.irfft(spectrum.real.square() + spectrum.imag.square(), _N_FFT)
    return lags[..., : _LONGEST_LAG + 2]
