"""Speaker embeddings (Wan et al. 2018, Generalized End-to-End Loss for Speaker Verification) as
Resemblyzer computes them.
"""

from collections.abc import Sequence

import numpy as np
import soxr
from resemblyzer import VoiceEncoder, preprocess_wav

from tools.quality.recordings.recording import Recording
from tools.quality.sound.speakers import Embeddings

_SAMPLE_RATE = 16_000


class SpeakerEncoder:
    """The network, loaded once."""

    def __init__(self) -> None:
        self._encoder = VoiceEncoder("cpu", verbose=False)

    def embed(self, recordings: Sequence[Recording]) -> Embeddings:
        """[recordings, 256], each of length 1."""
        return np.stack([self._embed(recording) for recording in recordings])

    def _embed(self, recording: Recording) -> Embeddings:
        sound = soxr.resample(recording.samples, recording.sample_rate, _SAMPLE_RATE)
        speech = preprocess_wav(sound) if np.any(sound) else sound[:0]
        # Where its voice activity detector finds no speech nothing is left: then the sound as it
        # is.
        embedding: Embeddings = self._encoder.embed_utterance(speech if len(speech) else sound)
        return embedding
