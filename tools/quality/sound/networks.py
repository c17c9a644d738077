"""Networks that judge sound; importing them takes half a minute.

Naturalness: DNSMOS (Reddy et al. 2022, DNSMOS P.835), what listeners would answer on the scale of
1 to 5, estimated by Microsoft's network. Speakers: embeddings (Wan et al. 2018, Generalized
End-to-End Loss for Speaker Verification) as Resemblyzer computes them.
"""

from collections.abc import Sequence

import numpy as np
import soxr
from resemblyzer import VoiceEncoder, preprocess_wav
from speechmos import dnsmos

from tools.quality.recordings.recording import Recording
from tools.quality.sound.speakers import Embeddings

_SAMPLE_RATE = 16_000


def overall_quality(recording: Recording) -> float:
    """The overall score. Sound shorter than the network's 9 s is repeated, as its authors do."""
    sound = np.clip(soxr.resample(recording.samples, recording.sample_rate, _SAMPLE_RATE), -1.0, 1.0)
    return float(dnsmos.run(sound, _SAMPLE_RATE)["ovrl_mos"])


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
