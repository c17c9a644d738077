"""Kaldi's filterbank, the input of the speaker encoder."""

import kaldi_native_fbank
import numpy as np
import torch
from torch import Tensor

RATE = 16_000
BINS = 80
_WINDOW = 400


def kaldi_fbank(wave: Tensor) -> Tensor:
    """Log mel energies, float32 [frames, 80], 100 frames a second: windows of 25 ms every 10 ms,
    only whole ones.

    wave: float32 [samples] in [-1, 1] at 16 kHz, not scaled to int16, at least 400 samples
    (ValueError otherwise). No dither; povey window, pre-emphasis 0.97, mean of each frame removed,
    power spectrum of 512 points, 20 Hz to Nyquist on Kaldi's mel scale. Source: compatibility
    specification section 2.5.
    """
    if wave.ndim != 1 or wave.shape[0] < _WINDOW:
        raise ValueError(f"wave has shape {list(wave.shape)}, expected [samples] with at least {_WINDOW} samples")
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = BINS
    options.mel_opts.low_freq = 20.0
    options.mel_opts.high_freq = 0.0
    options.use_energy = False
    options.energy_floor = 0.0
    filterbank = kaldi_native_fbank.OnlineFbank(options)
    filterbank.accept_waveform(RATE, wave.numpy())
    filterbank.input_finished()
    return torch.from_numpy(np.stack([filterbank.get_frame(index) for index in range(filterbank.num_frames_ready)]))


def speaker_features(wave: Tensor) -> Tensor:
    """`kaldi_fbank` minus its mean over time per bin: float32 [frames, 80]."""
    features = kaldi_fbank(wave)
    return features - features.mean(dim=0, keepdim=True)
