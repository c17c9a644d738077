"""Decodes one sentence before the first request, so that no caller waits for lazy
initialization.
"""

import time

import numpy as np

from cosyserve.spec import CHUNK_TOKENS, MEL_BINS, SPEAKER_DIMENSION
from services.token2wav.inputs.request import Hops, Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.stream import AcousticStream


async def warm_up(batcher: Batcher, profile: Profile = Profile.CONTINUOUS) -> float:
    """Decode two grid blocks and part of a third through the path of a request; returns the seconds
    it took.
    """
    began = time.perf_counter()
    empty_voice = Voice(
        np.zeros(0, np.int64), np.zeros((0, MEL_BINS), np.float32), np.ones(SPEAKER_DIMENSION, np.float32)
    )
    async with AcousticStream(batcher, Sentence(empty_voice, profile=profile, hops=Hops())) as stream:
        await stream.feed([0] * (2 * CHUNK_TOKENS + 4))
        await stream.finish()
        async for _ in stream:
            pass
    return time.perf_counter() - began
