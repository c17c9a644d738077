"""What one row of a batch is: a sentence or a part of one, often behind a prompt of the same voice,
as it is served.

Places are tokens of the corpus laid end to end (`Features.first`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from recipes.demo_voice.features import Features
from recipes.demo_voice.training.speech import Speech

GRANULE = 8
"""Lengths of measured batches are multiples of this, in tokens: few shapes, and rows that start
aligned in memory.
"""
LENGTHS = (8, 16, 32, 48, 64, 80, 96, 120, 144, 176, 216, 264)
"""Lengths of training batches, in tokens: a shape that comes back can be recorded once and
replayed.
"""
_PROMPT_TOKENS = (38, 90)
_LEAST_PROMPT = 16
_BEHIND_A_PROMPT = 0.35
_FROM_WITHIN = 0.25
_PROMPT_SHOWN = 0.8
_DRAWS = 16
_SPEAKER_ITSELF, _SPEAKER_OF_ANOTHER = 0.4, 0.7


@dataclass(frozen=True)
class Piece:
    """Tokens prompt .. prompt + prompt_tokens - 1, then body .. body + tokens - 1; the body's
    utterance ends before token `end`.

    prompt_tokens 0: no prompt. speaker: row of the table of speaker vectors. condition: frames of
    mel, from the first of the piece, that the estimator is shown.
    """

    prompt: int
    prompt_tokens: int
    body: int
    tokens: int
    end: int
    speaker: int
    condition: int

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.tokens

    def cut(self, length: int, *, front: bool) -> "Piece":
        """`length` tokens if there are more, by leaving out the beginning or the end; a little of
        prompt and body stays.
        """
        excess = self.length - length
        if excess <= 0:
            return self
        if not self.prompt_tokens:
            return replace(self, body=self.body + excess if front else self.body, tokens=length)
        wanted = (
            length - max(self.prompt_tokens - excess, min(self.prompt_tokens, _LEAST_PROMPT))
            if front
            else self.tokens - excess
        )
        tokens = max(wanted, min(self.tokens, GRANULE))
        lost = self.prompt_tokens - (length - tokens)
        return replace(
            self,
            prompt=self.prompt + lost,
            prompt_tokens=self.prompt_tokens - lost,
            tokens=tokens,
            condition=max(0, self.condition - MEL_FRAMES_PER_TOKEN * lost),
        )


class RandomPieces:
    """Random pieces of the utterances `members`.

    Speaker vectors come from a table of one row per utterance and behind them one per voice, in the
    order of `voices`.
    """

    def __init__(self, speech: Speech, features: Features, members: Sequence[int], rng: np.random.Generator) -> None:
        self._first, self._tokens, self._rng = features.first, features.tokens, rng
        self._members = [member for member in members if features.tokens[member] >= GRANULE]
        if not self._members:
            raise ValueError(f"no utterance has {GRANULE} speech tokens")
        self._voice = [utterance.voice for utterance in speech.utterances]
        self._of_voice: defaultdict[str, list[int]] = defaultdict(list)
        for member in self._members:
            self._of_voice[self._voice[member]].append(member)
        self._mean = {voice: len(self._voice) + at for at, voice in enumerate(voices(speech))}

    def batches(self, budget: int) -> Iterator[list[Piece]]:
        """Without end: each utterance once an epoch, cut to one of `LENGTHS` at its beginning or
        its end.

        Batches of one length always have the same number of pieces, together at most `budget`
        tokens (or one piece).
        """
        waiting: dict[int, list[Piece]] = {length: [] for length in LENGTHS}
        while True:
            draws = self._rng.random((len(self._members), _DRAWS)).tolist()
            for at in self._rng.permutation(len(self._members)).tolist():
                draw = iter(draws[at])
                piece = self._piece(self._members[at], draw)
                length = LENGTHS[bisect_right(LENGTHS, piece.length) - 1]
                waiting[length].append(piece.cut(length, front=next(draw) < 0.5))
                if len(waiting[length]) >= max(1, budget // length):
                    yield waiting[length]
                    waiting[length] = []

    def served(self, member: int, *, prompted: bool) -> Piece:
        """The whole utterance with its voice's mean vector, behind a prompt of the same voice or
        alone: as it is asked for.
        """
        prompt, count = self._prompt(member, iter(self._rng.random(_DRAWS).tolist())) if prompted else (0, 0)
        return self._whole(member, prompt, count, self._mean[self._voice[member]], MEL_FRAMES_PER_TOKEN * count)

    def _piece(self, member: int, draw: Iterator[float]) -> Piece:
        """draw: uniform in [0, 1), used up one after another; numpy makes many at once much faster
        than one by one.
        """
        prompt, count = self._prompt(member, draw) if next(draw) < _BEHIND_A_PROMPT else (0, 0)
        piece = self._whole(member, prompt, count, self._speaker(member, draw), 0)
        if next(draw) < _FROM_WITHIN and piece.tokens > 2 * GRANULE:
            skipped = int(next(draw) * (piece.tokens // 2))
            piece = replace(piece, body=piece.body + skipped, tokens=piece.tokens - skipped)
        piece = piece.cut(LENGTHS[-1], front=next(draw) < 0.5)
        if piece.prompt_tokens and next(draw) < _PROMPT_SHOWN:
            return replace(piece, condition=MEL_FRAMES_PER_TOKEN * piece.prompt_tokens)
        return (
            replace(piece, condition=int(MEL_FRAMES_PER_TOKEN * piece.length * 0.3 * next(draw)))
            if next(draw) < 0.5
            else piece
        )

    def _whole(self, member: int, prompt: int, count: int, speaker: int, condition: int) -> Piece:
        first, tokens = self._first[member], self._tokens[member]
        return Piece(prompt, count, first, tokens, first + tokens, speaker, condition)

    def _prompt(self, member: int, draw: Iterator[float]) -> tuple[int, int]:
        """First token and count: two or three seconds of another utterance, mostly from its
        beginning.
        """
        other = self._another(member, next(draw))
        tokens = self._tokens[other]
        count = min(tokens, _PROMPT_TOKENS[0] + int(next(draw) * (_PROMPT_TOKENS[1] - _PROMPT_TOKENS[0])))
        kind, place = next(draw), next(draw)
        skipped = 0 if kind < 0.6 else tokens - count if kind < 0.8 else int(place * (tokens - count + 1))
        return self._first[other] + skipped, count

    def _another(self, member: int, draw: float) -> int:
        same = self._of_voice.get(self._voice[member], self._members)
        return same[int(draw * len(same))]

    def _speaker(self, member: int, draw: Iterator[float]) -> int:
        kind = next(draw)
        if kind < _SPEAKER_ITSELF:
            return member
        return self._another(member, next(draw)) if kind < _SPEAKER_OF_ANOTHER else self._mean[self._voice[member]]


def voices(speech: Speech) -> list[str]:
    """Every voice once, sorted."""
    return sorted({utterance.voice for utterance in speech.utterances})


def equally_long(pieces: Sequence[Piece], rng: np.random.Generator) -> list[Piece]:
    """All cut to one length, a whole number of granules; each loses its beginning or its end.

    That of nearly the shortest: the few that are shorter still are left out, lest one of them cuts
    down all others.
    """
    lengths = sorted(piece.length for piece in pieces)
    length = max(GRANULE, lengths[len(lengths) // 10] // GRANULE * GRANULE)
    fronts = rng.random(len(pieces)) < 0.5
    return [
        piece.cut(length, front=bool(front))
        for piece, front in zip(pieces, fronts, strict=True)
        if piece.length >= length
    ]
