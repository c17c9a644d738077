"""How much voices have in common: `af_heart` is one of the teacher's, `af_heart:0.6+am_puck:0.4` a
blend of two.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from recipes.demo_voice.teacher.plan import Blend


def mixes(voices: Iterable[str]) -> tuple[list[str], list[str], npt.NDArray[np.float32]]:
    """Distinct voices, base voices (both sorted) and the share of each base in each voice, [voices,
    bases].
    """
    distinct = sorted(set(voices))
    parts = [dict(Blend.parse(voice).parts) for voice in distinct]
    bases = sorted({base for each in parts for base in each})
    shares = np.array([[each.get(base, 0.0) for base in bases] for each in parts], np.float32)
    return distinct, bases, shares


def overlap(shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[voices, bases] -> [voices, voices]: how much of the one is in the other, 1 for the same mix,
    0 when they share no base.
    """
    common: npt.NDArray[np.float32] = np.minimum(shares[:, None], shares[None]).sum(axis=2, dtype=np.float32)
    return common
