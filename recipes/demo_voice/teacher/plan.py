"""Who says what: a seeded, endless enough list of sentences, voices and speeds."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recipes.demo_voice.teacher.plan import random_blends
from recipes.demo_voice.training.speech import Sentence

MAIN_VOICES = ("af_heart", "am_michael")
SPEEDS = (0.9, 0.95, 1.0, 1.05, 1.1)
_MAIN_SHARE, _PRESET_SHARE, _BLENDS = 0.6, 0.2, 64


@dataclass(frozen=True)
class Job:
    """A sentence to be spoken."""

    sentence: Sentence
    voice: str
    speed: float

    @property
    def key(self) -> tuple[int, str, float]:
        return self.sentence.number, self.voice, self.speed


def varied(sentences: Sequence[Sentence], presets: Sequence[str], seed: int, voices_each: int = 4) -> Iterator[Job]:
    """Every sentence once in random order, then again, `voices_each` times in all, each time by
    another voice.

    60 % go to the two main voices, 20 % to the other presets and 20 % to 64 fixed blends; speeds
    from 0.9 to 1.1 are equally likely.
    """
    dice = random.Random(seed)  # noqa: S311 - a plan that can be repeated, no secret
    main = [voice for voice in MAIN_VOICES if voice in presets]
    others = [voice for voice in presets if voice not in main]
    blends = [blend.name for blend in random_blends(presets, _BLENDS, seed)] if len(presets) > 2 else []
    groups = [(main, _MAIN_SHARE), (others, _PRESET_SHARE), (blends, 1 - _MAIN_SHARE - _PRESET_SHARE)]
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


def plain(sentences: Sequence[Sentence], presets: Sequence[str]) -> Iterator[Job]:
    """Every sentence by each of the main voices, at the teacher's own speed, in order."""
    for sentence in sentences:
        for voice in MAIN_VOICES:
            if voice in presets:
                yield Job(sentence, voice, 1.0)
