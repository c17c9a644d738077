"""The first sentence of a process is spoken to nobody: it pays for lazy initialisation that a
caller would otherwise hear as delay.
"""

import time

import numpy as np

from cosyserve.spec import CHUNK_TOKENS, MEL_BINS, SPEAKER_DIMENSION
from services.token2wav.inputs.request import Hops, Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.stream import AcousticStream


async def warm_up(batcher: Batcher, profile: Profile = Profile.CONTINUOUS) -> float:
    """Speak two grid blocks and a part of a third, as a caller would; returns the seconds it
    took.
    """
    began = time.perf_counter()
    nobody = Voice(np.zeros(0, np.int64), np.zeros((0, MEL_BINS), np.float32), np.ones(SPEAKER_DIMENSION, np.float32))
    async with AcousticStream(batcher, Sentence(nobody, profile=profile, hops=Hops())) as stream:
        await stream.feed([0] * (2 * CHUNK_TOKENS + 4))
        await stream.finish()
        async for _ in stream:
            pass
    return time.perf_counter() - began
