"""The noise of the vocoder's source, by absolute place in the sentence."""

import torch
from torch import Tensor

from cosyserve import philox
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.inputs.cancellation import Stop, never, unless


def draw(seed: int, sentence: int, first: int, end: int, harmonics: int, stop: Stop = never) -> Tensor:
    """Standard normal draws, float32 [end - first, harmonics] on the CPU, for the samples
    first..end-1 of a sentence.

    Drawn a second at a time, which gives the same draws, with `stop` asked before each: raises
    Cancelled when it says so.
    """
    seconds = []
    for at in range(first, max(end, first + 1), SAMPLE_RATE):
        unless(stop)
        seconds.append(torch.from_numpy(philox.normal(seed, sentence, at, min(SAMPLE_RATE, end - at), harmonics)))
    return torch.cat(seconds)
