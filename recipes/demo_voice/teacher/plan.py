"""The teacher's voices (presets, and mixtures of them that are voices of their own), and who says
what: a seeded list of sentences, voices and speeds.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipes.demo_voice.training.speech import Sentence

MAIN_VOICES = ("af_heart", "am_michael")
SPEEDS = (0.9, 0.95, 1.0, 1.05, 1.1)
MAIN_SHARE, BLENDS = 0.6, 64
_STEP = 0.05


@dataclass(frozen=True)
class Blend:
    """A convex mixture of presets: (preset, weight) in the order of names, weights adding up to 1.
    A preset is a blend of one.
    """

    parts: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> "Blend":
        """Raises ValueError unless all weights are positive and add up to 1."""
        if not weights or min(weights.values()) <= 0 or abs(sum(weights.values()) - 1) > 1e-6:
            raise ValueError(f"no convex mixture: {dict(weights)}")
        return cls(tuple(sorted(weights.items())))

    @classmethod
    def parse(cls, name: str) -> "Blend":
        """The blend of that name: `af_heart`, or `af_heart:0.6+am_puck:0.4`."""
        weights = {}
        for part in name.split("+"):
            preset, _, weight = part.partition(":")
            weights[preset] = float(weight or 1)
        return cls.of(weights)

    @property
    def name(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0][0]
        return "+".join(f"{preset}:{weight:g}" for preset, weight in self.parts)


def random_blends(presets: Iterable[str], count: int, seed: int) -> list[Blend]:
    """`count` different mixtures, three quarters of them of two presets and the others of three,
    each weight at least 0.2.
    """
    dice = random.Random(seed)  # noqa: S311 - a plan that can be repeated, no secret
    ordered = sorted(presets)
    blends: dict[str, Blend] = {}
    while len(blends) < count:
        chosen = dice.sample(ordered, 2 if dice.random() < 0.75 else 3)
        spare = round((1 - 0.2 * len(chosen)) / _STEP)
        cuts = sorted(dice.randint(0, spare) for _ in chosen[1:])
        gains = [high - low for low, high in zip([0, *cuts], [*cuts, spare], strict=True)]
        blend = Blend.of({preset: round(0.2 + _STEP * gain, 2) for preset, gain in zip(chosen, gains, strict=True)})
        blends[blend.name] = blend
    return list(blends.values())


class Styles:
    """Style vectors out of a folder of `<preset>.npy`, float32 [510, 1, 256] each: row n - 1 is for
    sentences of n phonemes.
    """

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError when the folder holds no preset."""
        self._tables = {
            path.stem: np.load(path).astype(np.float32).reshape(-1, 256) for path in sorted(folder.glob("*.npy"))
        }
        if not self._tables:
            raise FileNotFoundError(f"no styles (*.npy) in {folder}")

    @property
    def presets(self) -> list[str]:
        return list(self._tables)

    def style(self, voice: str, phonemes: int) -> NDArray[np.float32]:
        """Float32 [256] of the voice of that name for a sentence of so many phonemes. Raises
        KeyError when a preset is missing.
        """
        table = self._tables[voice] if voice in self._tables else self._mixed(voice)
        row: NDArray[np.float32] = table[min(phonemes, len(table)) - 1]
        return row

    @lru_cache(maxsize=256)  # noqa: B019 - one Styles lives as long as its process
    def _mixed(self, voice: str) -> NDArray[np.float32]:
        mixed: NDArray[np.float32] = sum(
            np.float32(weight) * self._tables[preset] for preset, weight in Blend.parse(voice).parts
        )
        return mixed


@dataclass(frozen=True)
class Job:
    """A sentence to be spoken."""

    sentence: Sentence
    voice: str
    speed: float

    @property
    def key(self) -> tuple[int, str, float]:
        return self.sentence.number, self.voice, self.speed


def varied(
    sentences: Sequence[Sentence],
    presets: Sequence[str],
    seed: int,
    voices_each: int = 4,
    main_share: float = MAIN_SHARE,
    blends: int = BLENDS,
) -> Iterator[Job]:
    """Every sentence once in random order, then again, `voices_each` times in all, each time by
    another voice.

    A share of `main_share` goes to the two main voices, half of what is left to the other presets
    and half to so many fixed blends; speeds from 0.9 to 1.1 are equally likely.
    """
    dice = random.Random(seed)  # noqa: S311 - a plan that can be repeated, no secret
    main = [voice for voice in MAIN_VOICES if voice in presets]
    others = [voice for voice in presets if voice not in main]
    mixed = [blend.name for blend in random_blends(presets, blends, seed)] if len(presets) > 2 else []
    rest = (1 - main_share) / 2
    groups = [(main, main_share), (others, rest), (mixed, rest)]
    voices = [(voice, share / len(group)) for group, share in groups for voice in group]
    names, shares = [voice for voice, _ in voices], [share for _, share in voices]
    heard: dict[int, set[str]] = {sentence.number: set() for sentence in sentences}
    for _ in range(min(voices_each, len(names))):
        for sentence in dice.sample(sentences, len(sentences)):
            voice = next(
                name
                for name in iter(lambda: dice.choices(names, shares)[0], None)
                if name not in heard[sentence.number]
            )
            heard[sentence.number].add(voice)
            yield Job(sentence, voice, dice.choice(SPEEDS))


def plain(sentences: Sequence[Sentence], presets: Sequence[str], voices: Sequence[str] = MAIN_VOICES) -> Iterator[Job]:
    """Every sentence by each of `voices`, at the teacher's own speed, in order."""
    for sentence in sentences:
        for voice in voices:
            if voice in presets:
                yield Job(sentence, voice, 1.0)
