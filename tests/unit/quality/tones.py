"""Recordings made for a test."""

import numpy as np

from tools.quality.recordings.recording import Recording, Samples, Sentence

RATE = 24_000


def tone(seconds: float, hertz: float = 200.0) -> Samples:
    """A tone of amplitude 0.3 with a slow swell, whole periods or not."""
    time = np.arange(round(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * hertz * time) * (1 + 0.3 * np.sin(2 * np.pi * 3 * time))).astype(np.float32)


def recording(samples: Samples, *borders: int, number: int = 1, text: str = "Nothing is said here.") -> Recording:
    return Recording(Sentence(number, text), samples, RATE, borders)


def fading(samples: Samples, seconds: float = 0.15) -> Samples:
    """With an end that comes to rest: a linear fade and 50 ms of silence."""
    length = round(seconds * RATE)
    gain = np.ones(len(samples), np.float32)
    gain[-length:] = np.linspace(1, 0, length, dtype=np.float32)
    return np.concatenate([samples * gain, np.zeros(RATE // 20, np.float32)])
