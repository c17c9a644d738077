"""Short stretches of speech with what the vocoder knows of them, from the middle of sentences and
from their ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from recipes.demo_voice.training.speech import Speech, gather
from services.frontend.prompts.features.mel import mel_spectrogram

MAIN_VOICES, MAIN_SHARE = ("af_heart", "am_michael"), 0.5
"""The voices that are spoken with most, and their part of all segments together."""
EDGE_SHARE = 0.125
"""Part of the batches that begin with their sentences, and again that end with them."""
CONTEXT = 6
"""Mel frames given on either side of the sound that is asked for: one more than the f0 predictor
reaches.
"""
_MEL_MARGIN = 2
"""Frames of sound on either side that a mel frame in between depends on."""
_QUIETEST, _LOUDEST, _PEAK = 0.3, 1.4, 0.97


@dataclass(frozen=True)
class Stretch:
    """Frames of mel that are given before and after the frames of sound that are asked for; none at
    an end of the sentence.
    """

    before: int
    sound: int
    after: int

    @property
    def frames(self) -> int:
        return self.before + self.sound + self.after


@dataclass(frozen=True)
class Segments:
    """mel: float32 [B, 80, frames]. f0: [B, frames] Hz. wave: [B, 480 * sound] in [-1, 1]. stretch:
    the same for all.
    """

    stretch: Stretch
    mel: Tensor
    f0: Tensor
    wave: Tensor


class RandomPieces:
    """Random segments of the training utterances."""

    def __init__(
        self, speech: Speech, f0: Tensor, first_frames: list[int], sound: int, rng: np.random.Generator
    ) -> None:
        """f0, first_frames: of `pitch.of_speech`. sound: frames of sound in a segment. Raises
        ValueError when all are shorter.
        """
        self._audio, self._f0, self._rng = speech.audio, f0, rng
        utterances = [speech.utterances[index] for index in speech.training]
        self._frames = np.array([each.samples // SAMPLES_PER_MEL_FRAME for each in utterances])
        self._starts = np.array([each.start for each in utterances])
        self._first = np.array([first_frames[each.number] for each in utterances])
        voices = [each.voice for each in utterances]
        self._kinds = (Stretch(CONTEXT, sound, CONTEXT), Stretch(0, sound, CONTEXT), Stretch(CONTEXT, sound, 0))
        self._rooms = [
            self._frames - kind.frames - _MEL_MARGIN * (bool(kind.before) + bool(kind.after)) for kind in self._kinds
        ]
        if not (self._rooms[0] >= 0).any():
            raise ValueError(f"no training utterance has {self._kinds[0].frames + 2 * _MEL_MARGIN} mel frames")
        self._sums = [np.cumsum(_chances(voices, np.maximum(self._rooms[0] + 1, 0)))]
        self._sums += [np.cumsum(_chances(voices, rooms >= 0)) for rooms in self._rooms[1:]]

    def next(self, count: int) -> Segments:
        """A batch on the device of the audio, no two alike; nothing here waits for the device."""
        kind = int(self._rng.choice(3, p=(1 - 2 * EDGE_SHARE, EDGE_SHARE, EDGE_SHARE)))
        stretch, rooms = self._kinds[kind], self._rooms[kind]
        chosen = np.searchsorted(self._sums[kind], self._rng.uniform(0, self._sums[kind][-1], count), side="right")
        left, right = (_MEL_MARGIN if side else 0 for side in (stretch.before, stretch.after))
        room = rooms[chosen]
        begin = (self._rng.integers(0, room + 1), np.zeros_like(room), room)[kind]
        places = np.stack([self._starts[chosen] + SAMPLES_PER_MEL_FRAME * begin, self._first[chosen] + begin + left])
        sample, frame = _moved(torch.from_numpy(places), self._audio.device)
        wave = gather(self._audio, sample, SAMPLES_PER_MEL_FRAME * (left + stretch.frames + right)).float() / 32768
        wave = wave * _gains(wave)
        first = SAMPLES_PER_MEL_FRAME * (left + stretch.before)
        return Segments(
            stretch=stretch,
            mel=mel_spectrogram(wave)[:, :, left : left + stretch.frames],
            f0=gather(self._f0, frame, stretch.frames),
            wave=wave[:, first : first + SAMPLES_PER_MEL_FRAME * stretch.sound],
        )


def sent(values: Sequence[float], device: torch.device) -> Tensor:
    """float32 on the device, without waiting for it."""
    return _moved(torch.tensor(values, dtype=torch.float32), device)


def _moved(values: Tensor, device: torch.device) -> Tensor:
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def disturbed(mel: Tensor, noise: float, blur: float | Tensor) -> Tensor:
    """What a flow may deliver instead of mel [B, 80, T]. noise: largest deviation of white noise in
    nepers, each row has its own. blur: part of the rows that are smoothed over three bins and three
    frames, each by a degree of its own."""
    rows = torch.rand(3, mel.shape[0], 1, 1, device=mel.device)
    degree = rows[0] * (rows[1] < blur)
    smooth = F.avg_pool1d(F.pad(mel, (1, 1), mode="replicate"), 3, 1)
    smooth = F.avg_pool1d(F.pad(smooth.transpose(1, 2), (1, 1), mode="replicate"), 3, 1).transpose(1, 2)
    return mel + degree * (smooth - mel) + noise * rows[2] * torch.randn_like(mel)


def _gains(waves: Tensor) -> Tensor:
    """[B, 1]: 1 for half of the rows, anything between the quietest and the loudest for the others;
    no row is made to overflow.
    """
    draws = torch.rand(2, waves.shape[0], 1, device=waves.device)
    gains = _QUIETEST * (_LOUDEST / _QUIETEST) ** draws[0]
    gains = torch.where(draws[1] < 0.5, 1.0, gains)
    return torch.minimum(gains, _PEAK / waves.abs().amax(dim=1, keepdim=True).clamp(min=1e-3))


def _chances(voices: list[str], weights: np.ndarray) -> np.ndarray:
    """`weights` scaled so that the main voices, evenly among themselves, make up their share."""
    chances = weights.astype(np.float64)
    of_voice = np.array(voices)
    groups = [(of_voice == voice, MAIN_SHARE / len(MAIN_VOICES)) for voice in MAIN_VOICES]
    groups.append((~np.isin(of_voice, MAIN_VOICES), 1 - MAIN_SHARE))
    for members, share in groups:
        total = chances[members].sum()
        if total > 0:
            chances[members] *= share / total
    return chances
